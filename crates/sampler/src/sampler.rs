//! One sequence's sampler.

use crate::candidates::Candidates;
use crate::draw::{self, Draw};
use crate::dry::Matches;
use crate::history::History;
use crate::{Error, Result, SamplerParams, Stage, random};

/// Chooses the tokens of one sequence.
///
/// For each token, call [`Sampler::sample`] with its logits, then [`Sampler::accept`] with the token that was taken.
/// Tokens of the prompt go through [`Sampler::observe`], so that penalties see them and draws do not count them.
#[derive(Debug, Clone)]
pub struct Sampler {
    params: SamplerParams,
    vocab: usize,
    history: History,
    candidates: Candidates,
    /// What [`crate::Dry`] works with, if it is on.
    dry: Option<Matches>,
    /// Tokens accepted, which is the place of the next draw.
    position: u64,
}

impl Sampler {
    /// A sampler over `vocab` tokens. All memory is taken here.
    ///
    /// # Errors
    /// [`Error::Parameter`] if a parameter lies outside its range.
    pub fn new(params: SamplerParams, vocab: usize) -> Result<Self> {
        // Shares of so many cannot overflow.
        crate::params::require("vocab", "1 to 2^24 tokens", vocab, |v| v > 0 && v <= 1 << 24)?;
        params.check(vocab)?;
        let dry = params.dry.is_on() && params.order.contains(&Stage::Dry);
        let penalties = has_penalties(&params);
        let history = History::new(
            vocab,
            if penalties { params.repeat_last_n } else { 0 },
            if dry { params.dry.penalty_last_n } else { 0 },
        );
        let greedy = params.temperature == 0.0;
        let candidates = Candidates::new(if greedy { 0 } else { vocab });
        let dry = dry.then(|| Matches::new(vocab, params.dry.penalty_last_n));
        Ok(Self { params, vocab, history, candidates, dry, position: 0 })
    }

    /// The parameters that it was made with.
    pub fn params(&self) -> &SamplerParams {
        &self.params
    }

    /// What the next draw does, if a device can do it itself: the largest logit, or top-k, top-p and min-p in this order
    /// before temperature, with nothing that looks at other tokens.
    pub fn draw(&self) -> Option<Draw> {
        if self.changes_logits() { None } else { Draw::new(&self.params, self.position) }
    }

    /// How many tokens were accepted.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The token that follows. `logits` holds one number for each token of the vocabulary and is scratch afterwards.
    /// Calling it twice with the same logits gives the same token twice.
    ///
    /// # Errors
    /// [`Error::Length`], [`Error::NotANumber`], [`Error::Infinite`], or [`Error::NothingAllowed`] if every token has
    /// `-inf`.
    pub fn sample(&mut self, logits: &mut [f32]) -> Result<u32> {
        if logits.len() != self.vocab {
            return Err(Error::Length { expected: self.vocab, found: logits.len() });
        }
        let best = argmax(logits)?;
        let greedy = self.params.temperature == 0.0;
        if greedy && !self.changes_logits() {
            return Ok(best);
        }
        for &(token, bias) in &self.params.logit_bias {
            let logit = &mut logits[token as usize];
            if *logit != f32::NEG_INFINITY {
                *logit = if bias == f32::NEG_INFINITY { bias } else { finite(*logit + bias) };
            }
        }
        if greedy {
            // No filter ever drops the likeliest token but `typical`, which has no meaning without a draw.
            for index in 0..self.params.order.len() {
                self.lower(self.params.order[index], logits);
            }
            return argmax(logits);
        }
        // Stages on all logits come first by default; one that comes later sees the candidates' ids alone.
        let mut filled = false;
        for index in 0..self.params.order.len() {
            let stage = self.params.order[index];
            if matches!(stage, Stage::Penalties | Stage::Dry) {
                if filled {
                    self.candidates.write_back(logits);
                }
                self.lower(stage, logits);
                filled = false;
            } else {
                if !filled {
                    self.candidates.fill(logits);
                    filled = true;
                }
                self.filter(stage);
            }
        }
        if !filled {
            self.candidates.fill(logits);
        }
        let random = random::bits(random::before(self.params.seed, self.position));
        self.candidates.draw(random).ok_or(Error::NothingAllowed { tokens: self.vocab })
    }

    /// Takes the token that was sampled, or another one in its place, into the sequence.
    pub fn accept(&mut self, token: u32) {
        self.history.push(token);
        self.position += 1;
    }

    /// Lets penalties see a token that was not sampled, such as one of the prompt. It does not move draws.
    pub fn observe(&mut self, token: u32) {
        self.history.push(token);
    }

    /// Starts a new sequence: no tokens, and the first draw next.
    pub fn reset(&mut self) {
        self.history.clear();
        self.position = 0;
    }

    /// Continues a sequence whose tokens were observed again: the next draw is that of place `position`.
    pub fn seek(&mut self, position: u64) {
        self.position = position;
    }

    fn changes_logits(&self) -> bool {
        !self.params.logit_bias.is_empty() || self.dry.is_some() || has_penalties(&self.params)
    }

    fn lower(&mut self, stage: Stage, logits: &mut [f32]) {
        match stage {
            Stage::Penalties if has_penalties(&self.params) => self.penalize(logits),
            Stage::Dry => {
                if let Some(matches) = &mut self.dry {
                    matches.apply(&self.params.dry, &self.history, logits);
                }
            }
            _ => {}
        }
    }

    fn penalize(&self, logits: &mut [f32]) {
        let p = &self.params;
        for token in self.history.counted() {
            let Some(logit) = logits.get_mut(token as usize) else { continue };
            if *logit == f32::NEG_INFINITY {
                continue;
            }
            let scaled = if *logit > 0.0 { *logit / p.repeat_penalty } else { *logit * p.repeat_penalty };
            let count = self.history.count(token) as f32;
            *logit = finite(scaled - finite(count * p.frequency_penalty + p.presence_penalty));
        }
    }

    fn filter(&mut self, stage: Stage) {
        let (p, candidates) = (&self.params, &mut self.candidates);
        match stage {
            Stage::TopK => candidates.top_k(p.top_k),
            Stage::TopP if p.top_p < 1.0 => candidates.top_p(draw::share_of(p.top_p)),
            Stage::MinP if p.min_p > 0.0 => candidates.min_p(draw::below(p.min_p)),
            Stage::Typical => candidates.typical(p.typical_p),
            Stage::Temperature => candidates.temperature(draw::inverse(p.temperature)),
            Stage::TopP | Stage::MinP | Stage::Penalties | Stage::Dry => {}
        }
    }
}

fn has_penalties(p: &SamplerParams) -> bool {
    p.order.contains(&Stage::Penalties)
        && p.repeat_last_n > 0
        && (p.repeat_penalty != 1.0 || p.frequency_penalty != 0.0 || p.presence_penalty != 0.0)
}

/// The nearest number that is finite: so nothing that a penalty does becomes a difference of infinities.
fn finite(logit: f32) -> f32 {
    logit.clamp(f32::MIN, f32::MAX)
}

/// The largest logit's token, and of equals the lowest id.
fn argmax(logits: &[f32]) -> Result<u32> {
    let mut best = f32::NEG_INFINITY;
    let mut token = None;
    for (id, &logit) in (0u32..).zip(logits) {
        if logit > best {
            best = logit;
            token = Some(id);
        } else if logit.is_nan() {
            return Err(Error::NotANumber { token: id });
        }
    }
    match token {
        Some(token) if best == f32::INFINITY => Err(Error::Infinite { token }),
        Some(token) => Ok(token),
        None => Err(Error::NothingAllowed { tokens: logits.len() }),
    }
}
