//! "Don't repeat yourself": a penalty on the token that would lengthen a sequence which occurred before.
//!
//! If the last `n` tokens occurred earlier and were followed by a token then, and `n` is at least `allowed_length`, that
//! token's logit loses `multiplier * base^(n - allowed_length)`, for the longest such `n`. No match reaches over a
//! sequence breaker, such as a line's end, so that what every turn begins with is not taken for a repetition.

use crate::history::History;
use crate::params::require;
use crate::{Error, Result};

/// Most breakers, and most tokens in one.
const MAX_BREAKERS: usize = 256;
const MAX_BREAKER: usize = 64;

/// How much repeated sequences are held back.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct Dry {
    /// Penalty for a match of the allowed length; 0 turns it off. From 0.
    pub multiplier: f32,
    /// By how much each further token of a match multiplies the penalty. From 1.
    pub base: f32,
    /// Shortest match that is held back. From 1.
    pub allowed_length: usize,
    /// How many of the last tokens are searched; 0 turns it off.
    pub penalty_last_n: usize,
    /// Sequences of token ids that end every match.
    pub breakers: Vec<Vec<u32>>,
}

impl Default for Dry {
    fn default() -> Self {
        Self { multiplier: 0.0, base: 1.75, allowed_length: 2, penalty_last_n: 1024, breakers: Vec::new() }
    }
}

impl Dry {
    pub(crate) fn is_on(&self) -> bool {
        self.multiplier > 0.0 && self.penalty_last_n > 0
    }

    pub(crate) fn check(&self) -> Result<()> {
        require("dry.multiplier", "a number from 0", self.multiplier, |v| v >= 0.0 && v.is_finite())?;
        require("dry.base", "a number from 1", self.base, |v| v >= 1.0 && v.is_finite())?;
        require("dry.allowed_length", "a length from 1", self.allowed_length, |v| v >= 1)?;
        require("dry.penalty_last_n", "at most 1048576 tokens", self.penalty_last_n, |v| {
            v <= crate::params::MAX_LAST_N
        })?;
        require("dry.breakers", "at most 256 sequences", self.breakers.len(), |v| v <= MAX_BREAKERS)?;
        match self.breakers.iter().find(|b| b.is_empty() || b.len() > MAX_BREAKER) {
            Some(breaker) => Err(Error::Parameter {
                name: "dry.breakers",
                expected: "sequences of 1 to 64 tokens",
                found: format!("one of {}", breaker.len()),
            }),
            None => Ok(()),
        }
    }
}

/// Scratch for finding repetitions, taken once.
#[derive(Debug, Clone)]
pub(crate) struct Matches {
    /// The last tokens, newest first.
    recent: Vec<u32>,
    /// For each place in `recent`, how many tokens from there on equal those from the newest on.
    lengths: Vec<usize>,
    /// For each token of the vocabulary, the longest match that it would lengthen; zeros between calls.
    longest: Vec<usize>,
}

impl Matches {
    pub fn new(vocab: usize, window: usize) -> Self {
        Self { recent: Vec::with_capacity(window), lengths: vec![0; window], longest: vec![0; vocab] }
    }

    /// Lowers the logits of tokens that would lengthen a repetition.
    pub fn apply(&mut self, dry: &Dry, history: &History, logits: &mut [f32]) {
        self.recent.clear();
        self.recent.extend((0..dry.penalty_last_n).map_while(|n| history.back(n)));
        let unbroken = unbroken(&self.recent, &dry.breakers);
        if unbroken < dry.allowed_length {
            return;
        }
        self.measure();
        for n in 1..self.recent.len() {
            // The match that ends at place n was followed by the token one place newer.
            if let Some(longest) = self.longest.get_mut(self.recent[n - 1] as usize) {
                *longest = (*longest).max(self.lengths[n].min(unbroken));
            }
        }
        for &token in &self.recent {
            let Some(length) = self.longest.get_mut(token as usize).map(std::mem::take) else { continue };
            let logit = &mut logits[token as usize];
            if length >= dry.allowed_length && *logit != f32::NEG_INFINITY {
                let power = dry.base.powi((length - dry.allowed_length).min(1 << 20) as i32);
                *logit = (*logit - (dry.multiplier * power).min(f32::MAX)).max(f32::MIN);
            }
        }
    }

    /// Fills `lengths` in linear time: the Z-algorithm (Gusfield 1997).
    fn measure(&mut self) {
        let recent = &self.recent;
        let (mut start, mut end) = (0, 0);
        for n in 1..recent.len() {
            let mut length = if n < end { self.lengths[n - start].min(end - n) } else { 0 };
            while n + length < recent.len() && recent[length] == recent[n + length] {
                length += 1;
            }
            self.lengths[n] = length;
            if n + length > end {
                (start, end) = (n, n + length);
            }
        }
    }
}

/// How many of the newest tokens come after the newest breaker.
fn unbroken(recent: &[u32], breakers: &[Vec<u32>]) -> usize {
    let starts = |n: usize, breaker: &Vec<u32>| {
        recent[n..].len() >= breaker.len()
            && recent[n..].iter().zip(breaker.iter().rev()).all(|(a, b)| a == b)
    };
    (0..recent.len()).find(|&n| breakers.iter().any(|breaker| starts(n, breaker))).unwrap_or(recent.len())
}
