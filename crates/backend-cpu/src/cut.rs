//! How the columns of products are shared by threads.

use crate::{kernels::TILE_ROWS, program::Product};
use std::ops::Range;

/// Results of products that are worth a place in the cache until the next op on them.
const RESULTS: usize = 64 << 10;

/// How the columns of products are cut for a number of rows of activations.
#[derive(Clone, Copy)]
pub struct Cut {
    /// Columns in a chunk, the least that a thread claims.
    unit: usize,
    /// Columns on which all actions run before the next ones: what they write stays in the cache.
    most: usize,
}

impl Cut {
    /// For `rows` rows of activations.
    pub fn new(rows: usize) -> Self {
        // A matrix core works on tiles; without it, four streams through the weights should not be too short.
        let unit = if rows < 4 { 16 } else { TILE_ROWS };
        Self { unit, most: (RESULTS / rows.max(1)).next_multiple_of(unit).clamp(unit, 4096) }
    }

    /// Chunks of all products.
    pub fn chunks(self, products: &[Product]) -> usize {
        products.iter().map(|p| p.columns.div_ceil(self.unit)).sum()
    }

    /// Calls `body` for the products and columns of some chunks.
    pub fn pieces(
        self,
        products: &[Product],
        chunks: Range<usize>,
        mut body: impl FnMut(&Product, Range<usize>),
    ) {
        let mut first = 0;
        for product in products {
            let end = first + product.columns.div_ceil(self.unit);
            let mut at = chunks.start.max(first);
            while at < chunks.end.min(end) {
                let next = chunks.end.min(end).min(at + self.most / self.unit);
                body(product, (at - first) * self.unit..product.columns.min((next - first) * self.unit));
                at = next;
            }
            first = end;
        }
    }
}
