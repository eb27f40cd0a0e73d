//! The matrix core of `sdot`: a piece of a tile is four codes of each of four rows, which lie in vector lanes.

use super::tile::{Group, Part, Pieces, Sums, TOKENS, transpose};
use super::{Load, load_codes, load_floats, store_floats, tile};
use crate::kernels::matmul::{Job, Tile, TileMut};
use std::arch::aarch64::*;
use std::arch::asm;

struct Fours;

impl Pieces for Fours {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn pieces(rows: [int8x16_t; 4]) -> [int8x16_t; 4] {
        transpose(rows.map(|row| vreinterpretq_f32_s8(row))).map(|piece| vreinterpretq_s8_f32(piece))
    }

    #[inline(always)]
    fn place(i: usize, half: usize, _run: usize) -> usize {
        4 * half + i
    }
}

/// Unpacks rows into a tile.
#[target_feature(enable = "neon")]
pub fn fill<F: Load>(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
    tile::fill::<F, Fours>(job, first, tile);
}

/// Multiplies a tile with all rows of activations.
#[target_feature(enable = "neon,dotprod")]
pub fn product<F: Load>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    // SAFETY: this function has the features of `lane`.
    unsafe { tile::product(job, first, tile, lane::<F>) }
}

#[target_feature(enable = "neon,dotprod")]
fn lane<F: Load>(part: &Part<'_>, lane: usize, out: &mut Sums) {
    // Of four rows of weights and one of activations.
    let mut sums = [[vdupq_n_f32(0.0); TOKENS]; 4];
    for i in 0..part.groups::<F>(lane) {
        let group = part.group::<F>(lane, i);
        let mut x = [[vdupq_n_s8(0); 2]; TOKENS];
        for t in 0..TOKENS {
            x[t] = [load_codes(group.x[t][0], 0), load_codes(group.x[t][1], 0)];
        }
        // Written out, so that the sums stay in registers.
        sums[0] = four::<F, 0>(&group, &x, sums[0]);
        sums[1] = four::<F, 1>(&group, &x, sums[1]);
        sums[2] = four::<F, 2>(&group, &x, sums[2]);
        sums[3] = four::<F, 3>(&group, &x, sums[3]);
    }
    for t in 0..TOKENS {
        for four in 0..4 {
            store_floats(sums[four][t], &mut out[t], 4 * four);
        }
    }
}

/// Adds the products of a group for four of its rows.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn four<F: Load, const FOUR: usize>(
    group: &Group<'_>,
    x: &[[int8x16_t; 2]; TOKENS],
    mut sums: [float32x4_t; TOKENS],
) -> [float32x4_t; TOKENS] {
    let run = if F::FINE { 4 } else { 8 };
    let mut dots = [vdupq_n_s32(0); TOKENS];
    for v in (0..run).step_by(4) {
        let piece = |i: usize| group.piece(FOUR * run + v + i);
        let w = [piece(0), piece(1), piece(2), piece(3)];
        for t in 0..TOKENS {
            let x = x[t][v / 4];
            dots[t] = sdot_lane::<0>(dots[t], w[0], x);
            dots[t] = sdot_lane::<1>(dots[t], w[1], x);
            dots[t] = sdot_lane::<2>(dots[t], w[2], x);
            dots[t] = sdot_lane::<3>(dots[t], w[3], x);
        }
    }
    let scale = load_floats(&group.scale.0, 4 * FOUR);
    let offset = load_floats(&group.offset.0, 4 * FOUR);
    for t in 0..TOKENS {
        let side = &group.sides[t];
        sums[t] = vfmaq_f32(sums[t], vmulq_n_f32(scale, side.scale), vcvtq_f32_s32(dots[t]));
        if F::OFFSET {
            sums[t] = vfmaq_n_f32(sums[t], offset, side.sum);
        }
    }
    sums
}

/// Adds to each integer of `sum` the dot product of four codes of `a` and `b`. (The intrinsic is not stable yet.)
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub fn sdot(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let out;
    // SAFETY: the function has the instruction, which touches registers only.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inlateout(vreg) sum => out, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}

/// The same with four codes of `b`, those from `4 * LANE` on, for all of `a`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn sdot_lane<const LANE: usize>(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let out;
    // SAFETY: as above.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {a:v}.16b, {b:v}.4b[{lane}]",
            sum = inlateout(vreg) sum => out, a = in(vreg) a, b = in(vreg) b, lane = const LANE,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}
