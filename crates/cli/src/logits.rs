//! `nibble logits`: the logits of every position of a prompt.

use crate::{args::LogitsArgs, output, run::open, terminal};
use nibble_api::{Error, Kind, NewTensor, Options, log_sum_exp, safetensors_head};

/// Rows of logits held at once.
const WANTED: usize = 32;

pub fn run(args: &LogitsArgs) -> Result<(), Error> {
    if let Some(path) = &args.out {
        output::check(path, Some(&args.model))?;
    }
    let model = open(Some(&args.model))?;
    let tokens = match (&args.tokens, &args.prompt) {
        (Some(tokens), _) => tokens.clone(),
        (None, Some(text)) => model.encode(text)?,
        (None, None) => vec![],
    };
    if args.out.is_none() && !args.json {
        return Err(Error::new(Kind::Usage, "nothing to do: give --out FILE, --json, or both"));
    }
    let options = args.device.options();
    let context = options.context.or(Some(tokens.len().max(1)));
    let mut engine = model.start(&Options { context, wanted: WANTED, ..options })?;
    let mut top = Top { n: args.top, top: vec![], sums: vec![] };
    let mut keep = |row: &[f32]| {
        if args.json {
            top.add(row)
        }
    };
    match &args.out {
        Some(path) => {
            let io = |e| output::unwritable(path, e);
            nibble_api::replace(path, io, |out| {
                out.write_all(&head(&tokens, model.config.vocab)).map_err(io)?;
                let mut written = Ok(());
                engine.score(&tokens, |_, row| {
                    keep(row);
                    if written.is_ok() {
                        written = row.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()));
                    }
                })?;
                written.map_err(io)
            })?;
        }
        None => engine.score(&tokens, |_, row| keep(row))?,
    }
    if args.json {
        let json = serde_json::json!({ "tokens": tokens, "top": top.top, "logsumexp": top.sums });
        terminal::say(format_args!("{json}\n"))?;
    }
    Ok(())
}

/// What is printed of the rows so far.
struct Top {
    n: usize,
    top: Vec<Vec<(usize, f32)>>,
    sums: Vec<f64>,
}

impl Top {
    fn add(&mut self, row: &[f32]) {
        self.top.push(largest(row, self.n));
        self.sums.push(log_sum_exp(row));
    }
}

/// A safetensors file up to the data of its only tensor, with the tokens as a text.
fn head(tokens: &[u32], vocab: usize) -> Vec<u8> {
    let logits = NewTensor { name: "logits".into(), dtype: "F32", shape: vec![tokens.len(), vocab] };
    let tokens: Vec<_> = tokens.iter().map(ToString::to_string).collect();
    safetensors_head(&[logits], &[("tokens", tokens.join(","))])
}

/// The `n` largest logits with their ids, largest first, the lower id first among equals.
fn largest(row: &[f32], n: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<_> = row.iter().copied().enumerate().collect();
    let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let n = n.min(all.len());
    if n < all.len() {
        all.select_nth_unstable_by(n, order);
    }
    all.truncate(n);
    all.sort_unstable_by(order);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_ties_by_id() {
        assert_eq!(largest(&[1.0, 3.0, 2.0, 3.0], 3), [(1, 3.0), (3, 3.0), (2, 2.0)]);
        assert_eq!(largest(&[1.0], 10), [(0, 1.0)]);
    }
}
