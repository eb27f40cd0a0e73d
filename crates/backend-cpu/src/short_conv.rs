//! `short_conv`: a causal convolution of each column with its own few taps.

use crate::parts::Parts;
use std::ops::Range;

/// Columns that a chunk takes.
pub const COLUMNS: usize = 64;

/// The rows of one sequence.
#[derive(Clone, Copy)]
pub struct ShortConv<'a> {
    /// `[rows, width]`
    pub x: &'a [f32],
    /// `[rows, width]`
    pub y: Parts<'a, f32>,
    /// The last `kernel - 1` rows before these, oldest first: `[kernel - 1, width]`.
    pub state: Parts<'a, f32>,
    /// `[kernel, width]`: the transpose of what files hold.
    pub weight: &'a [f32],
    /// Columns in a row.
    pub width: usize,
}

impl ShortConv<'_> {
    /// Computes some columns of all rows and brings their state forward.
    ///
    /// # Safety
    /// Meanwhile nobody else may use these columns of `y` and `state`.
    pub unsafe fn run(&self, columns: Range<usize>) {
        let rows = self.x.len() / self.width;
        let past = self.weight.len() / self.width - 1;
        // Row `t` counts from the first row of the state.
        let input = |t: usize| {
            let start = t.checked_sub(past).unwrap_or(t) * self.width;
            let range = start + columns.start..start + columns.end;
            if t < past {
                // SAFETY: the caller says that these columns are ours; the result is only read.
                unsafe { &*self.state.part(range) }
            } else {
                &self.x[range]
            }
        };
        for row in 0..rows {
            let start = row * self.width;
            // SAFETY: the caller says that these columns are ours.
            let y = unsafe { self.y.part(start + columns.start..start + columns.end) };
            y.fill(0.0);
            for (j, weight) in self.weight.chunks_exact(self.width).enumerate() {
                for ((y, x), w) in y.iter_mut().zip(input(row + j)).zip(&weight[columns.clone()]) {
                    *y += w * x;
                }
            }
        }
        for r in 0..past {
            let mut kept = [0.0; COLUMNS];
            kept[..columns.len()].copy_from_slice(input(rows + r));
            let start = r * self.width;
            // SAFETY: as above, and the row that was just read is copied.
            let state = unsafe { self.state.part(start + columns.start..start + columns.end) };
            state.copy_from_slice(&kept[..columns.len()]);
        }
    }
}
