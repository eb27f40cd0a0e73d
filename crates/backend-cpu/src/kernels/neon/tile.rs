//! Many rows of activations: what the two matrix cores share.
//!
//! A group of 32 rows of weights is pieces of 16 bytes, all of the first rows before those of the next. How many rows a
//! piece holds is the core's choice: four codes of each of four ([`super::dot`]), or eight of each of two
//! ([`super::matrix`]). A core multiplies half of a tile, sixteen rows, with four rows of activations at a time.

use super::rows::padded;
use super::{Load, load_floats, store_floats};
use crate::kernels::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, Row, Side, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Fours, Job, Sixteen, TILE_ROWS, Tile, TileMut};
use std::arch::aarch64::*;

/// Rows of activations that share one reading of a tile.
pub const TOKENS: usize = 4;

/// Rows of weights that a core has in registers.
pub const ROWS: usize = 16;

/// The sums of one lane of the contract.
pub type Sums = [[f32; ROWS]; TOKENS];

/// Sixteen codes of each of four rows of weights as four pieces.
pub trait Pieces {
    /// The pieces.
    ///
    /// # Safety
    /// The processor must have NEON, as a trait's method cannot be safe and ask for it.
    unsafe fn pieces(rows: [int8x16_t; 4]) -> [int8x16_t; 4];
    /// Where piece `i` goes among the `run` pieces of these rows' group; `half` says which half of a group of 32 it
    /// belongs to, and is 0 for all groups of 16.
    fn place(i: usize, half: usize, run: usize) -> usize;
}

/// Unpacks rows from `first` on; rows past the end of the job repeat its last one.
#[inline]
#[target_feature(enable = "neon")]
pub fn fill<F: Load, P: Pieces>(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
    let whole = job.row_len / CHUNK;
    for four in (0..TILE_ROWS).step_by(4) {
        let rows: [&[u8]; 4] = std::array::from_fn(|i| job.row((first + four + i).min(job.end - 1)));
        let padded = rows.map(|row| padded(&row[whole * F::CHUNK_BYTES..]));
        for q in 0..job.row_len.div_ceil(CHUNK) {
            let chunks = std::array::from_fn(|r| {
                let from = if q < whole { &rows[r][q * F::CHUNK_BYTES..] } else { &padded[r] };
                &from[..F::CHUNK_BYTES]
            });
            fill_pair::<F, P, 0>(chunks, four, q, tile);
            fill_pair::<F, P, 1>(chunks, four, q, tile);
            fill_pair::<F, P, 2>(chunks, four, q, tile);
            fill_pair::<F, P, 3>(chunks, four, q, tile);
            fill_sides::<F>(chunks, four, q, tile);
        }
    }
}

/// Unpacks the codes of pair `I` of groups of chunk `q` of four rows from `four` on.
#[inline]
#[target_feature(enable = "neon")]
fn fill_pair<F: Load, P: Pieces, const I: usize>(
    chunks: [&[u8]; 4],
    four: usize,
    q: usize,
    tile: &mut TileMut<'_>,
) {
    // Pieces of four rows.
    let run = if F::FINE { 4 } else { 8 };
    let added = vdupq_n_s8(F::ADDED as i8);
    // SAFETY: this function has NEON.
    let codes = chunks.map(|chunk| unsafe { F::codes::<I>(chunk) });
    for v in 0..4 {
        let (group, half) = (2 * I + v % 2, v / 2);
        // Where the group starts, and which half of it this is.
        let (start, half) = if F::FINE { (4 * half, 0) } else { (0, half) };
        let at = tile.codes_at::<F>(q, group, start) * 4 + four / 4 * run;
        // SAFETY: as above.
        let pieces = unsafe { P::pieces(std::array::from_fn(|r| vsubq_s8(codes[r][v], added))) };
        for (i, piece) in pieces.into_iter().enumerate() {
            store_piece(piece, tile.codes, at + P::place(i, half, run));
        }
    }
}

/// Unpacks the scales and offsets of the same.
#[inline]
#[target_feature(enable = "neon")]
fn fill_sides<F: Load>(chunks: [&[u8]; 4], four: usize, q: usize, tile: &mut TileMut<'_>) {
    // SAFETY: this function has NEON.
    let sides = chunks.map(|chunk| unsafe { F::sides(chunk) });
    let order = if F::FINE { FINE_ORDER } else { COARSE_ORDER };
    for v in 0..if F::FINE { 4 } else { 2 } {
        let scale = transpose(std::array::from_fn(|r| sides[r].scale[v]));
        let offset = transpose(std::array::from_fn(|r| sides[r].offset[v]));
        for i in 0..4 {
            let at = tile.group_at::<F>(q, v / 2, order[v % 2 * 4 + i]) + four / 16;
            store_floats(scale[i], &mut tile.scale[at].0, four % 16);
            if F::OFFSET {
                store_floats(offset[i], &mut tile.offset[at].0, four % 16);
            }
        }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_piece(piece: int8x16_t, codes: &mut [Fours], at: usize) {
    let to: &mut [u8; 16] = codes[at / 4].0[at % 4 * 16..].first_chunk_mut().expect("four pieces");
    // SAFETY: the reference covers the 16 bytes written, and the store asks for no alignment.
    unsafe { vst1q_s8(to.as_mut_ptr().cast(), piece) }
}

/// Rows of four numbers to columns.
#[inline]
#[target_feature(enable = "neon")]
pub fn transpose(r: [float32x4_t; 4]) -> [float32x4_t; 4] {
    let pair = |a, b| {
        let (even, odd) = (vtrn1q_f32(a, b), vtrn2q_f32(a, b));
        (vreinterpretq_f64_f32(even), vreinterpretq_f64_f32(odd))
    };
    let ((a, b), (c, d)) = (pair(r[0], r[1]), pair(r[2], r[3]));
    let low = |a, b| vreinterpretq_f32_f64(vtrn1q_f64(a, b));
    let high = |a, b| vreinterpretq_f32_f64(vtrn2q_f64(a, b));
    [low(a, c), low(b, d), high(a, c), high(b, d)]
}

/// Half of a tile and the rows of activations that it is multiplied with.
pub struct Part<'a> {
    tile: &'a Tile<'a>,
    x: [Row<'a>; TOKENS],
    half: usize,
    row_len: usize,
}

/// One group of a [`Part`].
pub struct Group<'a> {
    /// The pieces of its rows of weights.
    pub codes: &'a [Fours],
    /// Their scales.
    pub scale: &'a Sixteen,
    /// Their offsets.
    pub offset: &'a Sixteen,
    /// The codes of each row of activations: 32, or the same 16 twice.
    pub x: [[&'a [i8; 16]; 2]; TOKENS],
    /// Their scales and sums.
    pub sides: [Side; TOKENS],
}

impl<'a> Part<'a> {
    /// How many groups belong to a lane of the contract.
    #[inline(always)]
    pub fn groups<F: Format>(&self, lane: usize) -> usize {
        let groups = self.row_len.div_ceil(if F::FINE { 16 } else { 32 });
        groups.saturating_sub(lane).div_ceil(8)
    }

    /// Group `i` of a lane.
    #[inline(always)]
    pub fn group<F: Format>(&self, lane: usize, i: usize) -> Group<'a> {
        let (parts, run) = if F::FINE { (2, 4) } else { (1, 8) };
        let (q, part) = (i / parts, i % parts);
        let chunks = chunks(self.row_len);
        let (at, group) = (lane * chunks * parts + i, self.tile.lane(lane) * parts + i);
        let codes = &self.tile.codes[group * 2 * run + self.half * run..][..run];
        let side = 2 * group + self.half;
        let x = std::array::from_fn(|t| {
            if F::FINE {
                let (line, at) = (2 * part + lane / 4, lane / 2 % 2 * 16 + lane % 2 * 32);
                let codes = codes_at(&self.x[t], chunks, q, line, at);
                [codes; 2]
            } else {
                let codes =
                    |half: usize| codes_at(&self.x[t], chunks, q, lane / 2, lane % 2 * 16 + 32 * half);
                [codes(0), codes(1)]
            }
        });
        let sides = std::array::from_fn(|t| {
            let x = &self.x[t];
            if F::FINE { x.fine_lanes[at] } else { x.coarse_lanes[at] }
        });
        Group { codes, scale: &self.tile.scale[side], offset: &self.tile.offset[side], x, sides }
    }
}

#[inline(always)]
fn codes_at<'a>(x: &Row<'a>, chunks: usize, q: usize, line: usize, at: usize) -> &'a [i8; 16] {
    x.lines[line * chunks + q].0[at..].first_chunk().expect("sixteen codes of a line")
}

impl Group<'_> {
    /// Piece `i`.
    #[inline]
    #[target_feature(enable = "neon")]
    pub fn piece(&self, i: usize) -> int8x16_t {
        vreinterpretq_s8_u8(super::load(&self.codes[i / 4].0, i % 4 * 16))
    }
}

/// Multiplies a tile, whose first row is `first`, with all rows of activations; `lane` computes the sums of a lane.
///
/// # Safety
/// `lane` must be fit for this processor.
#[inline]
#[target_feature(enable = "neon")]
pub unsafe fn product(
    job: &Job<'_>,
    first: usize,
    tile: &Tile<'_>,
    lane: unsafe fn(&Part<'_>, usize, &mut Sums),
) {
    for t in (0..job.x.count()).step_by(TOKENS) {
        let count = TOKENS.min(job.x.count() - t);
        // Missing rows repeat the last one.
        let x = std::array::from_fn(|i| job.x.row(t + i.min(count - 1)));
        for half in 0..(job.end - first).div_ceil(ROWS).min(TILE_ROWS / ROWS) {
            let part = Part { tile, x, half, row_len: job.row_len };
            let mut lanes = [[[0.0; ROWS]; TOKENS]; 8];
            for (i, sums) in lanes.iter_mut().enumerate() {
                // SAFETY: the caller's promise.
                unsafe { lane(&part, i, sums) }
            }
            let n = first + half * ROWS;
            for i in 0..count {
                let mut y = [0.0; ROWS];
                for at in (0..ROWS).step_by(4) {
                    let l = |lane: usize| load_floats(&lanes[lane][i], at);
                    let sum = |a, b| vaddq_f32(a, b);
                    let even = sum(sum(l(0), l(4)), sum(l(2), l(6)));
                    let odd = sum(sum(l(1), l(5)), sum(l(3), l(7)));
                    store_floats(sum(sum(even, odd), vdupq_n_f32(0.0)), &mut y, at);
                }
                job.y.write(t + i, n, &y[..ROWS.min(job.end - n)]);
            }
        }
    }
}
