//! Before anybody is judged by it, the judge is checked.

use crate::side::{Form, Prompt};
use nibble_api::{Activations, Error, Kind, KvType, Model, Options, log_sum_exp};
use serde::Deserialize;

/// A small model whose logits transformers has computed; `golden/README.md` tells how.
static MODEL: &[u8] = include_bytes!("../../../golden/gguf/llama-q8_0.gguf");
static GOLDEN: &str = include_str!("../../../golden/gguf/llama-q8_0.golden.json");

/// The most that float64 sums may differ from transformers in float32.
const TOLERANCE: f64 = 2e-3;

#[derive(Deserialize)]
struct Golden {
    prompts: Vec<GoldenPrompt>,
}

#[derive(Deserialize)]
struct GoldenPrompt {
    name: String,
    ids: Vec<u32>,
    /// The largest logits of each position, as (token, logit).
    top10: Vec<Vec<(usize, f64)>>,
    logsumexp: Vec<f64>,
}

/// Lets a device of this program reproduce the golden file, with nothing rounded but the weights.
///
/// # Errors
/// [`Kind::Run`] if it does not: then nothing may be judged by it.
pub fn reproduces_golden(device: &str) -> Result<String, Error> {
    check(device, MODEL, GOLDEN)
}

fn check(device: &str, model: &'static [u8], golden: &str) -> Result<String, Error> {
    let refuse =
        |what: String| Error::new(Kind::Run, format!("{device}: does not reproduce its golden file: {what}"));
    let golden: Golden = serde_json::from_str(golden).map_err(|e| refuse(e.to_string()))?;
    let model = Model::from_bytes(model, "golden model")?;
    let longest = golden.prompts.iter().map(|p| p.ids.len()).max().unwrap_or(1);
    let options = Options {
        device: device.into(),
        kv: KvType::F32,
        activations: Activations::F32,
        context: Some(longest),
        wanted: longest,
        ..Options::default()
    };
    let mut engine = model.start(&options)?;
    let (mut positions, mut most) = (0, 0.0f64);
    for prompt in &golden.prompts {
        let mut worst = 0.0f64;
        engine.score(&prompt.ids, |position, row| {
            let top =
                prompt.top10[position].iter().map(|&(token, logit)| (f64::from(row[token]) - logit).abs());
            let off = top.fold((log_sum_exp(row) - prompt.logsumexp[position]).abs(), f64::max);
            worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
            positions += 1;
        })?;
        if worst > TOLERANCE {
            return Err(refuse(format!(
                "prompt `{}` is off by {worst:.1e}, expected at most {TOLERANCE:e}",
                prompt.name
            )));
        }
        most = most.max(worst);
    }
    Ok(format!("reproduces its golden file ({positions} positions of transformers' logits) to {most:.1e}"))
}

/// Says the rows of a prompt to the function that it gets.
pub(crate) type Say<'a> = dyn FnMut(&mut dyn FnMut(usize, &[f32])) -> Result<(), Error> + 'a;

/// Lets `side`, of which nothing else is known, say the rows of one prompt twice: the same ones both times, one for each
/// position.
///
/// # Errors
/// [`Kind::Run`] if it does not.
pub(crate) fn says_the_same_twice(
    side: String,
    form: Form,
    prompt: &Prompt,
    say: &mut Say<'_>,
) -> Result<String, Error> {
    let refuse =
        |what: String| Err(Error::new(Kind::Run, format!("{side}: cannot be compared with: {what}")));
    let expected: Vec<_> = (prompt.first..prompt.end).collect();
    let mut times: [Vec<u32>; 2] = [vec![], vec![]];
    for bits in &mut times {
        let mut positions = vec![];
        say(&mut |position, row| {
            positions.push(position);
            bits.extend(row.iter().map(|x| x.to_bits()));
        })?;
        if positions != expected {
            return refuse(format!("expected {} positions, found {}", expected.len(), positions.len()));
        }
    }
    if times[0] != times[1] {
        return refuse("it says other logits when asked the same a second time".into());
    }
    let form = if form == Form::Logits { "logits" } else { "log-probabilities" };
    Ok(format!("says the same {form} twice ({} positions)", expected.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_reproduces_its_golden_file() {
        let checked = reproduces_golden("reference").unwrap();
        assert!(checked.contains("152 positions"), "{checked}");
    }

    #[test]
    fn a_wrong_oracle_is_found_out() {
        let wrong = GOLDEN.replacen("\"logsumexp\": [1", "\"logsumexp\": [2", 1);
        assert_ne!(wrong, GOLDEN);
        let error = check("reference", MODEL, &wrong).unwrap_err().to_string();
        assert!(error.contains("does not reproduce its golden file"), "{error}");
    }

    #[test]
    fn a_side_that_changes_its_mind_is_found_out() {
        let prompt = Prompt::new("p", vec![1, 2]);
        let mut asked = 0.0;
        let mut twice = |step: f32, positions: usize| {
            says_the_same_twice("x".into(), Form::Logits, &prompt, &mut |row| {
                asked += step;
                (0..positions).for_each(|position| row(position, &[asked, 1.0]));
                Ok(())
            })
        };
        assert!(twice(0.0, 2).is_ok());
        assert!(twice(1.0, 2).unwrap_err().to_string().contains("a second time"));
        assert!(twice(0.0, 1).unwrap_err().to_string().contains("expected 2 positions, found 1"));
    }
}
