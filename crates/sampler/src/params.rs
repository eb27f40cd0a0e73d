//! What a sampler may do to logits, and in which order.

use crate::{Dry, Error, Result};

/// Most tokens that a penalty may look back at, since memory is taken for all of them.
pub(crate) const MAX_LAST_N: usize = 1 << 20;

/// How tokens are chosen. [`SamplerParams::default`] changes nothing but draws at temperature 1.
#[derive(Debug, Clone, PartialEq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct SamplerParams {
    /// Divides the logits; 0 picks the largest always, and of equals the lowest id. From 0.
    pub temperature: f32,
    /// Keeps this many of the likeliest tokens; 0 keeps all.
    pub top_k: usize,
    /// Keeps the likeliest tokens until their probabilities sum to this. Above 0, to 1, which keeps all.
    pub top_p: f32,
    /// Keeps tokens of at least this share of the likeliest one's probability. From 0, which keeps all, to 1.
    pub min_p: f32,
    /// Keeps the tokens whose surprise is closest to the expected one (the entropy), until their probabilities sum
    /// to this. Above 0, to 1, which keeps all.
    pub typical_p: f32,
    /// Divides positive logits and multiplies others, of tokens among the last [`SamplerParams::repeat_last_n`]. Above 0;
    /// 1 changes nothing.
    pub repeat_penalty: f32,
    /// How many of the last tokens the three penalties look at; 0 turns them off.
    pub repeat_last_n: usize,
    /// Taken from a token's logit for each time that it is among the last ones. Any number.
    pub frequency_penalty: f32,
    /// Taken from a token's logit once if it is among the last ones. Any number.
    pub presence_penalty: f32,
    /// Against repeated sequences.
    pub dry: Dry,
    /// Added to the logits of tokens, before all else. `-inf` forbids a token.
    pub logit_bias: Vec<(u32, f32)>,
    /// What draws depend on, together with their place in the sequence.
    pub seed: u64,
    /// In which order the stages work. Each stands at most once, and one that is missing does nothing.
    pub order: Vec<Stage>,
}

impl Default for SamplerParams {
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            typical_p: 1.0,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            dry: Dry::default(),
            logit_bias: Vec::new(),
            seed: 0,
            order: default_order(),
        }
    }
}

/// One thing that a sampler does to the logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "kebab-case"))]
pub enum Stage {
    /// Repetition, frequency and presence.
    Penalties,
    /// Sequences that repeat.
    Dry,
    /// The k likeliest.
    TopK,
    /// Locally typical.
    Typical,
    /// The nucleus.
    TopP,
    /// A share of the likeliest.
    MinP,
    /// Division by the temperature.
    Temperature,
}

impl Stage {
    /// All stages with their names, in the default order: penalties see what the model said, each filter then sees
    /// the probabilities at temperature 1, and temperature spreads what is left.
    pub const ALL: [(&'static str, Stage); 7] = [
        ("penalties", Self::Penalties),
        ("dry", Self::Dry),
        ("top-k", Self::TopK),
        ("typical", Self::Typical),
        ("top-p", Self::TopP),
        ("min-p", Self::MinP),
        ("temperature", Self::Temperature),
    ];
}

/// `penalties,dry,top-k,typical,top-p,min-p,temperature`.
pub fn default_order() -> Vec<Stage> {
    Stage::ALL.iter().map(|&(_, stage)| stage).collect()
}

/// Reads an order from names of [`Stage::ALL`] between commas. An empty text is an empty order.
///
/// # Errors
/// [`Error::Parameter`] for an unknown name or one that stands twice.
pub fn parse_order(text: &str) -> Result<Vec<Stage>> {
    let mut order = Vec::new();
    for name in text.split(',').map(str::trim) {
        if text.trim().is_empty() {
            break;
        }
        match Stage::ALL.iter().find(|(known, _)| *known == name) {
            Some((_, stage)) => order.push(*stage),
            None => return Err(order_error(format!("`{name}`"))),
        }
    }
    check_order(&order)?;
    Ok(order)
}

fn check_order(order: &[Stage]) -> Result<()> {
    for (index, stage) in order.iter().enumerate() {
        if order[..index].contains(stage) {
            let name = Stage::ALL.iter().find(|(_, known)| known == stage).map_or("", |(name, _)| name);
            return Err(order_error(format!("`{name}` twice")));
        }
    }
    Ok(())
}

fn order_error(found: String) -> Error {
    let expected =
        "names out of penalties, dry, top-k, typical, top-p, min-p, temperature, each at most once";
    Error::Parameter { name: "order", expected, found }
}

impl SamplerParams {
    /// Whether every parameter lies in its range, for a vocabulary of `vocab` tokens.
    ///
    /// # Errors
    /// [`Error::Parameter`] for the first that does not.
    pub fn check(&self, vocab: usize) -> Result<()> {
        let share = |v: f32| v > 0.0 && v <= 1.0;
        let finite = f32::is_finite;
        require("temperature", "a number from 0", self.temperature, |v| v >= 0.0 && finite(v))?;
        require("top_p", "a number above 0, to 1", self.top_p, share)?;
        require("min_p", "a number from 0 to 1", self.min_p, |v| (0.0..=1.0).contains(&v))?;
        require("typical_p", "a number above 0, to 1", self.typical_p, share)?;
        require("repeat_penalty", "a number above 0", self.repeat_penalty, |v| v > 0.0 && finite(v))?;
        require("repeat_last_n", "at most 1048576 tokens", self.repeat_last_n, |v| v <= MAX_LAST_N)?;
        require("frequency_penalty", "a finite number", self.frequency_penalty, finite)?;
        require("presence_penalty", "a finite number", self.presence_penalty, finite)?;
        self.dry.check()?;
        for &(token, bias) in &self.logit_bias {
            require("logit_bias", "ids of the vocabulary", token, |v| (v as usize) < vocab)?;
            require("logit_bias", "numbers or -inf", bias, |v| finite(v) || v == f32::NEG_INFINITY)?;
        }
        check_order(&self.order)
    }
}

/// An error unless `holds` for the value.
pub(crate) fn require<T: Copy + std::fmt::Display>(
    name: &'static str,
    expected: &'static str,
    value: T,
    holds: impl Fn(T) -> bool,
) -> Result<()> {
    if holds(value) { Ok(()) } else { Err(Error::Parameter { name, expected, found: value.to_string() }) }
}
