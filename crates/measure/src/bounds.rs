//! What a row needs at least, and the limit that bounds it.

use crate::{
    case::{Case, Task},
    report::Bound,
    work::Work,
};

/// What a row needs and what bounds it. A step is one of generation, or a whole prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bounds {
    /// Products with weights in a step.
    pub products: f64,
    /// Bytes that a step must read.
    pub bytes: f64,
    decode: bool,
    /// The one of the two that the limit is about.
    pub work: f64,
    /// Which limit.
    pub bound: Bound,
    /// The limit, per second.
    pub limit: Option<f64>,
    /// Steps made per second.
    pub steps_per_s: f64,
}

impl Bounds {
    /// What a row needs, if prompts run in chunks of so many tokens.
    pub fn of(case: &Case, work: &Work, chunk: usize) -> Self {
        let (decode, batch) = (case.task == Task::Decode, case.batch);
        let (products, bytes) = match decode {
            true => {
                // Each step sees itself and what is before: from one position more than the depth on.
                let positions = case.depth as f64 + (case.tokens as f64 + 1.0) / 2.0;
                let products = batch as f64 * (work.row_products + work.wanted_products);
                (products, work.decode_bytes(batch, positions))
            }
            false => {
                let chunks = case.tokens.div_ceil(chunk);
                let rows = case.tokens.min(chunk);
                (work.prompt_products(case.tokens), chunks as f64 * work.decode_bytes(rows, 0.0))
            }
        };
        Self { products, bytes, decode, work: 0.0, bound: Bound::Memory, limit: None, steps_per_s: 0.0 }
    }

    /// With the limits: bytes a second for generation, products a second for prompts.
    pub fn limited(self, steps_per_s: f64, exact: bool, bandwidth: Option<f64>, peak: Option<f64>) -> Self {
        let (work, bound, limit) = match (self.decode, exact) {
            (true, _) => (self.bytes, Bound::Memory, bandwidth),
            (false, false) => (self.products, Bound::Int8, peak),
            (false, true) => (self.products, Bound::F32, peak),
        };
        Self { work, bound, limit, steps_per_s, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{limits::share, work::KvWork};

    fn known() -> Work {
        Work {
            dense_bytes: 8e8,
            kv: vec![KvWork { position_bytes: 1e5, window: None }],
            row_products: 1e9,
            wanted_products: 1e8,
            ..Work::default()
        }
    }

    #[test]
    fn the_share_of_generation_is_bytes_over_bandwidth() {
        let case = Case { task: Task::Decode, tokens: 199, depth: 900, batch: 2 };
        // Positions 900 + 100 for each of two sequences: 800 MB + 2 * 100 MB = 1 GB a step.
        let bounds = Bounds::of(&case, &known(), 512).limited(20.0, false, Some(4e10), Some(4e11));
        assert_eq!((bounds.work, bounds.bound, bounds.limit), (1e9, Bound::Memory, Some(4e10)));
        assert_eq!(share(bounds.work * bounds.steps_per_s, 1.0, bounds.limit), Some(0.5));
        assert_eq!(bounds.products, 2.2e9);
    }

    #[test]
    fn the_share_of_a_prompt_is_products_over_the_peak_of_their_kind() {
        let case = Case { task: Task::Prefill, tokens: 600, depth: 0, batch: 1 };
        let bounds = |exact| Bounds::of(&case, &known(), 512).limited(0.5, exact, Some(4e10), Some(1e12));
        assert_eq!((bounds(false).bound, bounds(true).bound), (Bound::Int8, Bound::F32));
        let found = share(bounds(false).work * 0.5, 1.0, bounds(false).limit).unwrap();
        assert!((found - (600e9 + 1e8) * 0.5 / 1e12).abs() < 1e-12, "{found}");
        assert_eq!(bounds(false).bytes, 1.6e9, "two chunks read the weights twice");
    }
}
