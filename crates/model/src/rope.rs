//! Rotary frequencies: the plain ones and the published ways to stretch them.
//!
//! Pair `i` of `dims / 2` turns by `position / base^(2i / dims)`. Sources: linear and dynamic NTK scaling as in
//! Hugging Face transformers; YaRN, arXiv 2309.00071; Llama 3.1 model card.

use crate::{
    Problem, Weights,
    config::{Keys, wrong},
};
use nibble_graph::{Frequencies, Rope, RopeLayout};
use std::f64::consts::TAU;

/// Rotary embedding of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct RopeConfig {
    /// Numbers in a head.
    pub head_dim: usize,
    /// Numbers of a head that turn: the first ones, an even number.
    pub dims: usize,
    /// Which of them turn together.
    pub layout: RopeLayout,
    /// The base.
    pub base: f64,
    /// How it is stretched.
    pub scaling: Scaling,
}

/// How frequencies are stretched for more positions than the model was first trained for.
#[derive(Clone, Debug, PartialEq)]
pub enum Scaling {
    /// Not at all.
    None,
    /// All by one factor.
    Linear {
        /// Divides every frequency.
        factor: f64,
    },
    /// The base grows with the length, see [`Frequencies::Dynamic`].
    Dynamic {
        /// How fast it grows.
        factor: f64,
        /// The length up to which it does not.
        original: usize,
    },
    /// Slow pairs by a factor, fast ones not, a ramp between.
    Yarn {
        /// Divides the slow frequencies.
        factor: f64,
        /// The length trained for at first.
        original: usize,
        /// Turns within `original` from which a pair is fast.
        beta_fast: f64,
        /// Turns within `original` up to which a pair is slow.
        beta_slow: f64,
        /// Multiplies sine and cosine.
        attention_factor: f64,
        /// Whether the ramp begins and ends at whole pairs.
        truncate: bool,
    },
    /// Long waves by a factor, short ones not, a ramp between.
    Llama3 {
        /// Divides the frequencies of long waves.
        factor: f64,
        /// The length trained for at first.
        original: usize,
        /// Waves longer than `original / low` are long.
        low: f64,
        /// Waves shorter than `original / high` are short.
        high: f64,
    },
}

impl RopeConfig {
    /// Reads `rope.*`; whole heads turn if the file does not say otherwise.
    pub(crate) fn read(keys: &Keys<'_>, head_dim: usize, context: usize) -> Result<Self, Problem> {
        let dims = keys.count("rope.dimension_count", 2..=head_dim)?.unwrap_or(head_dim);
        if dims % 2 != 0 || dims == 0 {
            return Err(wrong("rope.dimension_count", "an even number", dims));
        }
        let base = keys.positive("rope.freq_base")?.unwrap_or(10_000.0);
        if base <= 1.0 {
            return Err(wrong("rope.freq_base", "more than 1", base));
        }
        let scaling = Scaling::read(keys, context)?;
        if dims == 2 && matches!(scaling, Scaling::Dynamic { .. }) {
            return Err(wrong("rope.dimension_count", "more than 2 for dynamic scaling", dims));
        }
        Ok(Self { head_dim, dims, layout: keys.rope_layout()?, base, scaling })
    }

    /// The same with another base and without scaling.
    pub(crate) fn unscaled(&self, base: f64) -> Self {
        Self { base, scaling: Scaling::None, ..self.clone() }
    }

    /// The op; `rope.factors` of the file, if there are any, divide the frequencies.
    ///
    /// # Errors
    /// If the factors are not one for each pair, above zero, or meet dynamic scaling.
    pub fn op(&self, w: &Weights<'_>) -> Result<Rope, Problem> {
        let factors = w.vector("rope.factors", self.dims / 2)?;
        let frequencies = match (&self.scaling, factors) {
            (Scaling::Dynamic { .. }, Some(_)) => {
                return Err(wrong(
                    "rope.scaling.type",
                    "no dynamic scaling beside `rope.factors`",
                    "dynamic",
                ));
            }
            (&Scaling::Dynamic { factor, original }, None) => Frequencies::Dynamic {
                base: self.base as f32,
                factor: factor as f32,
                original: u32::try_from(original).expect("contexts are below 2^31"),
            },
            (_, factors) => {
                let mut inverse = self.frequencies();
                for (f, divisor) in inverse.iter_mut().zip(factors.iter().flatten()) {
                    if !(divisor.is_finite() && *divisor > 0.0) {
                        return Err(wrong("rope.factors", "finite numbers above 0", divisor));
                    }
                    *f /= f64::from(*divisor);
                }
                Frequencies::Fixed(inverse.iter().map(|&f| f as f32).collect())
            }
        };
        let magnitude = self.magnitude() as f32;
        Ok(Rope { head_dim: self.head_dim, dims: self.dims, layout: self.layout, frequencies, magnitude })
    }

    /// What sine and cosine are multiplied with.
    pub fn magnitude(&self) -> f64 {
        match self.scaling {
            Scaling::Yarn { attention_factor, .. } => attention_factor,
            _ => 1.0,
        }
    }

    /// Radians that each pair turns from one position to the next; without growth for dynamic scaling.
    pub fn frequencies(&self) -> Vec<f64> {
        let dims = self.dims as f64;
        let plain = (0..self.dims / 2).map(|i| self.base.powf(-2.0 * i as f64 / dims));
        match self.scaling {
            Scaling::None | Scaling::Dynamic { .. } => plain.collect(),
            Scaling::Linear { factor } => plain.map(|f| f / factor).collect(),
            Scaling::Yarn { factor, original, beta_fast, beta_slow, truncate, .. } => {
                // The pair that makes `turns` turns within the original length.
                let pair =
                    |turns: f64| dims * (original as f64 / (turns * TAU)).ln() / (2.0 * self.base.ln());
                let (mut low, mut high) = (pair(beta_fast), pair(beta_slow));
                if truncate {
                    (low, high) = (low.floor(), high.ceil());
                }
                (low, high) = (low.max(0.0), high.min(dims - 1.0));
                let width = if low == high { 0.001 } else { high - low };
                let slow = |i: usize| ((i as f64 - low) / width).clamp(0.0, 1.0);
                plain.enumerate().map(|(i, f)| mix(f / factor, f, slow(i))).collect()
            }
            Scaling::Llama3 { factor, original, low, high } => {
                let stretch = |f: f64| {
                    let turns = original as f64 * f / TAU;
                    let short = ((turns - low) / (high - low)).clamp(0.0, 1.0);
                    mix(f, f / factor, short)
                };
                plain.map(stretch).collect()
            }
        }
    }
}

/// `a` at 1, `b` at 0.
fn mix(a: f64, b: f64, part: f64) -> f64 {
    a * part + b * (1.0 - part)
}

impl Scaling {
    fn read(keys: &Keys<'_>, context: usize) -> Result<Self, Problem> {
        let factor = keys.positive("rope.scaling.factor")?;
        let need_factor = || factor.ok_or(Problem::MissingKey { key: "rope.scaling.factor" });
        let original = keys.count("rope.scaling.original_context_length", 1..=1 << 31)?;
        let need_original =
            || original.ok_or(Problem::MissingKey { key: "rope.scaling.original_context_length" });
        Ok(match keys.text("rope.scaling.type")? {
            None | Some("none" | "default") => Self::None,
            Some("linear") => Self::Linear { factor: need_factor()? },
            // The length the model says it has is the one it was trained for.
            Some("dynamic") => Self::Dynamic { factor: need_factor()?, original: context },
            Some("yarn") => {
                let original = original.unwrap_or(context);
                let factor = factor.unwrap_or(context as f64 / original as f64);
                Self::Yarn {
                    factor,
                    original,
                    beta_fast: keys.positive("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                    beta_slow: keys.positive("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
                    attention_factor: yarn_attention_factor(keys, factor)?,
                    truncate: keys.flag("rope.scaling.truncate")?.unwrap_or(true),
                }
            }
            Some("llama3") => {
                let low = keys.positive("rope.scaling.low_freq_factor")?.unwrap_or(1.0);
                let high = keys.positive("rope.scaling.high_freq_factor")?.unwrap_or(4.0);
                if high <= low {
                    return Err(wrong("rope.scaling.high_freq_factor", format!("more than {low}"), high));
                }
                Self::Llama3 { factor: need_factor()?, original: need_original()?, low, high }
            }
            Some(other) => {
                let known = "none, linear, dynamic, yarn or llama3";
                return Err(wrong("rope.scaling.type", known, other));
            }
        })
    }
}

/// What YaRN multiplies sine and cosine with for a stretch by `factor`: `0.1 scale ln(factor) + 1`, `scale` mostly 1.
pub fn yarn_magnitude(factor: f64, scale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 }
}

/// As the file says, or [`yarn_magnitude`]; a quotient of two of them with both `mscale`s.
fn yarn_attention_factor(keys: &Keys<'_>, factor: f64) -> Result<f64, Problem> {
    if let Some(explicit) = keys.positive("rope.scaling.attn_factor")? {
        return Ok(explicit);
    }
    let (mscale, all) =
        (keys.positive("rope.scaling.mscale")?, keys.positive("rope.scaling.mscale_all_dim")?);
    Ok(match (mscale, all) {
        (Some(mscale), Some(all)) => yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all),
        _ => yarn_magnitude(factor, 1.0),
    })
}

#[cfg(test)]
mod tests;
