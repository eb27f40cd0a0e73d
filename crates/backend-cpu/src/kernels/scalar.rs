//! The twin of every integer kernel, in the plainest Rust: unpacks with the codec itself and follows the contract of
//! the module word by word.

use super::activations::{COARSE_ORDER, FINE_ORDER, Row};
use super::format::{BlockBuffer, Chunk, unpack_row};
use super::matmul::Job;
use nibble_quant::{Codec, Kind};

/// Computes every output of a job.
pub fn product(codec: &dyn Codec, job: &Job<'_>, rows: &mut [Chunk], block: &mut BlockBuffer) {
    let chunks = &mut rows[..super::activations::chunks(job.row_len)];
    for n in job.first..job.end {
        unpack_row(codec, job.row(n), chunks, block);
        for t in 0..job.x.count() {
            let row = job.x.row(t);
            let y =
                if codec.kind() == Kind::Group16 { dot_fine(chunks, &row) } else { dot_coarse(chunks, &row) };
            job.y.write(t, n, &[y]);
        }
    }
}

fn dot_coarse(weights: &[Chunk], x: &Row<'_>) -> f32 {
    let mut lanes = [0.0; 8];
    for (q, (w, side)) in weights.iter().zip(x.coarse).enumerate() {
        for (place, group) in COARSE_ORDER.into_iter().enumerate() {
            let at = super::activations::code_place(32 * group);
            let sum = dot(w, x, q, at) + dot(w, x, q, at + 32);
            let lane = &mut lanes[group];
            *lane = (w.scale[place] * side.scale[place]).mul_add(sum as f32, *lane);
            *lane = w.offset[place].mul_add(side.sum[place], *lane);
        }
    }
    tree(&lanes)
}

fn dot_fine(weights: &[Chunk], x: &Row<'_>) -> f32 {
    let mut lanes = [0.0; 8];
    for (q, (w, side)) in weights.iter().zip(x.fine).enumerate() {
        for half in 0..2 {
            for (place, group) in FINE_ORDER.into_iter().enumerate() {
                let at = super::activations::code_place(128 * half + 16 * group);
                let sum = dot(w, x, q, at);
                let lane = &mut lanes[group];
                *lane = (w.scale[8 * half + place] * side.scale[half][place]).mul_add(sum as f32, *lane);
                *lane = w.offset[8 * half + place].mul_add(side.sum[half][place], *lane);
            }
        }
    }
    tree(&lanes)
}

/// The dot product of the sixteen codes of a chunk from place `at` on; those of weights have 128 added.
fn dot(w: &Chunk, x: &Row<'_>, q: usize, at: usize) -> i32 {
    let x = &x.line(q, at / 64).0[at % 64..];
    w.codes[at..at + 16].iter().zip(x).map(|(&w, &x)| (i32::from(w) - 128) * i32::from(x)).sum()
}

/// The sum of eight lanes in the fixed order. A sum of 0 is +0, so that a product with an offset of 0 may be left out.
pub fn tree(l: &[f32; 8]) -> f32 {
    (((l[0] + l[4]) + (l[2] + l[6])) + ((l[1] + l[5]) + (l[3] + l[7]))) + 0.0
}
