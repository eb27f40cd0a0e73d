//! How surprised a model is by a text, in chunks as llama.cpp's `llama-perplexity` makes them, so that figures compare.
//!
//! Without a stride: chunks of `ctx` tokens one after another, each from an empty context; the second half is scored,
//! and where the model wants a token in front, it takes the place of the chunk's first one. With a stride: windows of
//! `ctx + stride / 2` tokens that start `stride` tokens apart, the last `stride` positions of each scored, nothing put in
//! front.

use crate::{
    agreement::{self, RowAgreement},
    base_file::{self, BaseFile, DEPTH, Head},
    side::Form,
    stats::Moments,
};
use nibble_api::{EncodeOptions, Engine, Error, Kind, Model, Options, log_sum_exp};
use serde::Serialize;
use std::{io::Write, ops::ControlFlow};

/// Rows of logits held at once.
const WANTED: usize = 64;

/// How a text is cut.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Cut {
    /// Tokens of context.
    pub ctx: usize,
    /// Tokens between the starts of windows.
    pub stride: Option<usize>,
    /// At most so many chunks.
    pub chunks: Option<usize>,
}

/// A text in chunks.
#[derive(Clone, Debug)]
pub struct Chunks {
    tokens: Vec<u32>,
    /// Tokens of a chunk.
    len: usize,
    /// From the start of a chunk to that of the next one.
    step: usize,
    /// The first position of a chunk that is scored.
    first: usize,
    count: usize,
    /// Takes the place of each first token.
    leading: Option<u32>,
}

impl Chunks {
    /// The tokens of `text` in chunks.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the text is shorter than two chunks or the sizes make no sense, [`Kind::Load`] without a
    /// tokenizer.
    pub fn of_text(model: &Model, text: &str, cut: &Cut) -> Result<Self, Error> {
        let options = EncodeOptions { add_special: true, parse_special: false };
        Self::new(model.tokenizer()?.encode(text, options), model.leading_token(), cut)
    }

    /// The chunks that a base file was made from.
    pub fn of_base(model: &Model, head: &Head, chunks: Option<usize>) -> Self {
        let count = chunks.unwrap_or(usize::MAX).min(head.chunks());
        Self {
            tokens: head.tokens.clone(),
            len: head.ctx,
            step: head.ctx,
            first: head.first(),
            count,
            leading: model.leading_token(),
        }
    }

    fn new(tokens: Vec<u32>, leading: Option<u32>, cut: &Cut) -> Result<Self, Error> {
        let stride = cut.stride.unwrap_or(0);
        let refuse = |what: String| Err(Error::new(Kind::Usage, what));
        if cut.ctx < 4 {
            return refuse(format!("--ctx: expected at least 4 tokens, found {}", cut.ctx));
        }
        if stride > cut.ctx {
            return refuse(format!("--stride: expected at most the context of {}, found {stride}", cut.ctx));
        }
        let len = cut.ctx + stride / 2;
        if tokens.len() < 2 * len {
            return refuse(format!(
                "--text: expected at least {} tokens, two chunks of {len}, found {}; choose a longer text or a smaller --ctx",
                2 * len,
                tokens.len()
            ));
        }
        let (step, first, count) = match stride {
            0 => (len, len / 2, tokens.len() / len),
            _ => (stride, len - stride - 1, (tokens.len() - len).div_ceil(stride)),
        };
        let count = cut.chunks.unwrap_or(usize::MAX).min(count);
        let leading = leading.filter(|_| stride == 0);
        Ok(Self { tokens, len, step, first, count, leading })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The settings that an engine for them needs.
    pub fn options(&self, options: &Options) -> Options {
        Options { context: Some(self.len), wanted: WANTED, sequences: 1, ..options.clone() }
    }

    /// What a base file says before their rows.
    ///
    /// # Errors
    /// [`Kind::Usage`] for windows with a stride, which such a file cannot hold.
    pub fn head(&self, vocab: usize) -> Result<Head, Error> {
        if self.step != self.len {
            let what = "--save-logits: expected chunks one after another, found --stride, which the file has no room for";
            return Err(Error::new(Kind::Usage, what));
        }
        Ok(Head { ctx: self.len, vocab, tokens: self.tokens[..self.count * self.len].to_vec() })
    }

    /// Runs all chunks; `row` gets chunk, position in it, logits and the token that follows.
    fn run(
        &self,
        engine: &mut Engine,
        mut row: impl FnMut(usize, usize, &[f32], u32) -> Result<(), Error>,
        mut chunk_done: impl FnMut(usize) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        for chunk in 0..self.count {
            let text = &self.tokens[chunk * self.step..][..self.len];
            let mut tokens = text.to_vec();
            if let Some(leading) = self.leading {
                tokens[0] = leading;
            }
            // What the last position says, nothing follows.
            tokens.pop();
            let mut result = Ok(());
            engine.score_from(self.first, &tokens, |position, logits| {
                if result.is_ok() {
                    result = row(chunk, position, logits, text[position + 1]);
                }
            })?;
            result?;
            if chunk_done(chunk + 1).is_break() {
                return Err(Error::new(
                    Kind::Run,
                    format!("interrupted after {} of {} chunks", chunk + 1, self.count),
                ));
            }
        }
        Ok(())
    }
}

/// A perplexity with its standard error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// `exp` of the mean negative log-likelihood.
    pub perplexity: f64,
    /// Its standard error.
    pub error: f64,
    /// Tokens scored.
    pub tokens: usize,
}

impl Estimate {
    fn of(nll: &Moments) -> Self {
        let perplexity = nll.mean().exp();
        Self { perplexity, error: perplexity * nll.error(), tokens: nll.count() }
    }
}

fn surprise(logits: &[f32], next: u32) -> Result<f64, Error> {
    let nll = log_sum_exp(logits) - f64::from(logits[next as usize]);
    if nll.is_finite() {
        return Ok(nll);
    }
    Err(Error::new(Kind::Run, format!("logits: expected finite numbers, found token {next} at {nll}")))
}

/// The perplexity of a text. `save` gets the base file of the run, if somebody wants it. `progress` gets the chunks done
/// and the estimate so far.
///
/// # Errors
/// If the engine fails, a logit is not finite, the file cannot be written, or `progress` asks to stop.
pub fn perplexity(
    engine: &mut Engine,
    chunks: &Chunks,
    mut save: Option<&mut dyn Write>,
    progress: &mut dyn FnMut(usize, Estimate) -> ControlFlow<()>,
) -> Result<Estimate, Error> {
    let nll = std::cell::RefCell::new(Moments::default());
    chunks.run(
        engine,
        |_, _, logits, next| {
            nll.borrow_mut().add(surprise(logits, next)?);
            match &mut save {
                Some(out) => base_file::write_row(logits, out)
                    .map_err(|e| Error::new(Kind::Run, format!("--save-logits: cannot be written: {e}"))),
                None => Ok(()),
            }
        },
        |done| progress(done, Estimate::of(&nll.borrow())),
    )?;
    Ok(Estimate::of(&nll.borrow()))
}

/// How far a model's probabilities are from stored ones.
#[derive(Clone, Debug, Serialize)]
pub struct Divergence {
    /// Of the model.
    pub model: Estimate,
    /// Of the stored run, by its rounded log-probabilities.
    pub base: Estimate,
    /// Mean of `ln(PPL / PPL of the base)`, and its error.
    pub ln_ratio: [f64; 2],
    /// Mean Kullback-Leibler divergence in nats, and its error.
    pub kl: [f64; 2],
    /// Its percentiles: (per cent, value).
    pub kl_percentiles: Vec<(f64, f64)>,
    /// Share of positions with the same likeliest token, and its error.
    pub top1: [f64; 2],
    /// Root mean square of the differences of the next token's probability.
    pub rms_dp: f64,
}

static PERCENTILES: &[f64] = &[0.0, 1.0, 5.0, 10.0, 50.0, 90.0, 95.0, 99.0, 99.9, 100.0];

/// Compares a model with the run that a base file stored. `progress` gets the chunks done and the mean divergence.
///
/// # Errors
/// As [`perplexity`].
pub fn divergence(
    engine: &mut Engine,
    chunks: &Chunks,
    base: &BaseFile,
    progress: &mut dyn FnMut(usize, f64) -> ControlFlow<()>,
) -> Result<Divergence, Error> {
    let mut stored = vec![0.0; base.head.vocab];
    let [mut nll, mut nll_base, mut ratio, mut same, mut dp] = [(); 5].map(|()| Moments::default());
    let values = std::cell::RefCell::new(vec![]);
    chunks.run(
        engine,
        |chunk, position, logits, next| {
            base.read(chunk, position - base.head.first(), &mut stored)?;
            let row: RowAgreement = agreement::compare(logits, &stored, Form::LogProbs { depth: DEPTH })?;
            let (mine, theirs) = (surprise(logits, next)?, -f64::from(stored[next as usize]));
            nll.add(mine);
            nll_base.add(theirs);
            ratio.add(mine - theirs);
            same.add(f64::from(u8::from(row.top[0] == row.top[1])));
            dp.add(((-mine).exp() - (-theirs).exp()).powi(2));
            values.borrow_mut().push(row.kl);
            Ok(())
        },
        |done| {
            let values = values.borrow();
            progress(done, values.iter().sum::<f64>() / values.len().max(1) as f64)
        },
    )?;
    let mut values = values.into_inner();
    let mut kl = Moments::default();
    values.iter().for_each(|&value| kl.add(value));
    values.sort_by(f64::total_cmp);
    Ok(Divergence {
        model: Estimate::of(&nll),
        base: Estimate::of(&nll_base),
        ln_ratio: [ratio.mean(), ratio.error()],
        kl: [kl.mean(), kl.error()],
        kl_percentiles: PERCENTILES
            .iter()
            .map(|&p| (p, crate::stats::percentile(&values, p / 100.0)))
            .collect(),
        top1: [same.mean(), same.error()],
        rms_dp: dp.mean().sqrt(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(tokens: u32, leading: Option<u32>, ctx: usize, stride: Option<usize>) -> Result<Chunks, Error> {
        Chunks::new((0..tokens).collect(), leading, &Cut { ctx, stride, chunks: None })
    }

    #[test]
    fn chunks_follow_each_other_and_windows_overlap() {
        let whole = chunks(35, Some(99), 8, None).unwrap();
        assert_eq!((whole.count(), whole.len, whole.step, whole.first), (4, 8, 8, 4));
        let windows = chunks(35, Some(99), 8, Some(4)).unwrap();
        assert_eq!((windows.len, windows.step, windows.first, windows.leading), (10, 4, 5, None));
        assert_eq!(windows.count(), 7, "the last one ends before or with the text");
        assert!(6 * 4 + 10 <= 35 && windows.head(9).is_err() && whole.head(9).unwrap().chunks() == 4);
    }

    #[test]
    fn texts_that_are_too_short_and_sizes_without_sense_are_refused() {
        for (tokens, ctx, stride) in [(15, 8, None), (100, 2, None), (100, 8, Some(9)), (19, 8, Some(4))] {
            assert!(chunks(tokens, None, ctx, stride).is_err(), "{tokens} {ctx} {stride:?}");
        }
    }
}
