//! What a draw does, in the numbers that it is done with.

use crate::{SamplerParams, Stage, random};

/// A draw that looks at nothing but the logits: the `top_k` likeliest, of these the likeliest until their shares sum to
/// `top_p`, of these the ones not too far below the best, then one of these by their shares at a temperature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Draw {
    /// Tokens that are kept; 0 keeps all, 1 takes the likeliest whatever the rest says.
    pub top_k: u32,
    /// Sum of shares that is kept, times 2^32; 0 keeps all.
    pub top_p: u32,
    /// How far a logit may be below the best.
    pub below: f32,
    /// What distances to the best logit are multiplied by.
    pub inverse: f32,
    /// What the random number is mixed from; that of the next token is [`crate::GOLDEN`] more.
    pub random: u64,
}

impl Draw {
    /// The largest logit, the lowest id of equals.
    pub const LARGEST: Self = Self { top_k: 1, top_p: 0, below: f32::MAX, inverse: 1.0, random: 0 };

    /// The draw at `position`, if its order is the default one, or one that does the same.
    pub(crate) fn new(p: &SamplerParams, position: u64) -> Option<Self> {
        if p.temperature == 0.0 {
            return Some(Self::LARGEST);
        }
        let has = |stage| p.order.contains(&stage);
        let works = |stage: &&Stage| match stage {
            Stage::TopK => p.top_k > 0,
            Stage::Typical => p.typical_p < 1.0,
            Stage::TopP => p.top_p < 1.0,
            Stage::MinP => p.min_p > 0.0,
            Stage::Temperature => p.temperature != 1.0,
            Stage::Penalties | Stage::Dry => false,
        };
        let order = p.order.iter().filter(works);
        let default = [Stage::TopK, Stage::TopP, Stage::MinP, Stage::Temperature];
        let places = order.map(|stage| default.iter().position(|s| s == stage));
        if !places.clone().all(|place| place.is_some()) || !places.is_sorted() {
            return None;
        }
        Some(Self {
            top_k: if has(Stage::TopK) { u32::try_from(p.top_k).unwrap_or(0) } else { 0 },
            top_p: if has(Stage::TopP) && p.top_p < 1.0 { share_of(p.top_p) } else { 0 },
            below: if has(Stage::MinP) && p.min_p > 0.0 { below(p.min_p) } else { f32::MAX },
            inverse: if has(Stage::Temperature) { inverse(p.temperature) } else { 1.0 },
            random: random::before(p.seed, position),
        })
    }
}

/// A share below 1, times 2^32; at least the smallest.
pub(crate) fn share_of(p: f32) -> u32 {
    ((f64::from(p) * (1u64 << 32) as f64) as u32).max(1)
}

/// How far below the best logit one has the share `p` of its probability.
pub(crate) fn below(p: f32) -> f32 {
    -f64::from(p).ln() as f32
}

/// One over the temperature, finite.
pub(crate) fn inverse(temperature: f32) -> f32 {
    temperature.recip().min(f32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Sampler;

    #[test]
    fn only_draws_that_do_the_same_are_draws_of_a_device() {
        let base =
            || SamplerParams { top_k: 40, top_p: 0.9, min_p: 0.1, temperature: 0.7, ..Default::default() };
        let draw = |params| Sampler::new(params, 100).unwrap().draw();
        let found = draw(base()).unwrap();
        assert_eq!((found.top_k, found.top_p), (40, (f64::from(0.9f32) * 2f64.powi(32)) as u32));
        assert_eq!((found.below, found.inverse), (-f64::from(0.1f32).ln() as f32, 0.7f32.recip()));
        let greedy = draw(SamplerParams { temperature: 0.0, typical_p: 0.5, ..base() }).unwrap();
        assert_eq!(greedy, Draw::LARGEST);
        let order = |order: &[Stage]| SamplerParams { order: order.to_vec(), ..base() };
        use Stage::{MinP, Temperature, TopK, TopP, Typical};
        assert_eq!(draw(order(&[TopK, TopP, MinP, Temperature])), Some(found));
        assert_eq!(draw(order(&[TopK])).map(|d| (d.top_k, d.top_p, d.inverse)), Some((40, 0, 1.0)));
        assert!(draw(order(&[Temperature, Typical, TopK])).is_none());
        assert!(draw(SamplerParams { order: vec![TopP, TopK], top_p: 1.0, ..base() }).is_some());
        for params in [
            order(&[TopP, TopK]),
            SamplerParams { typical_p: 0.9, ..base() },
            SamplerParams { repeat_penalty: 1.1, ..base() },
            SamplerParams { logit_bias: vec![(1, 1.0)], ..base() },
            SamplerParams { dry: crate::Dry { multiplier: 1.0, ..Default::default() }, ..base() },
        ] {
            assert!(draw(params.clone()).is_none(), "{params:?}");
        }
    }
}
