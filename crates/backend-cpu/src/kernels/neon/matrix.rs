//! The matrix core of `smmla`: a piece of a tile is eight codes of each of two rows, and meets eight codes of each of two
//! rows of activations.

use super::tile::{Group, Part, Pieces, Sums};
use super::{Load, load_codes, load_floats, store_floats, tile};
use crate::kernels::matmul::{Job, Tile, TileMut};
use std::arch::aarch64::*;
use std::arch::asm;

struct Eights;

impl Pieces for Eights {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn pieces(r: [int8x16_t; 4]) -> [int8x16_t; 4] {
        let ([a, b], [c, d]) = (eights(r[0], r[1]), eights(r[2], r[3]));
        [a, b, c, d]
    }

    #[inline(always)]
    fn place(i: usize, half: usize, run: usize) -> usize {
        i / 2 * (run / 2) + 2 * half + i % 2
    }
}

/// The first eight codes of both, the last eight of both.
#[inline]
#[target_feature(enable = "neon")]
fn eights(a: int8x16_t, b: int8x16_t) -> [int8x16_t; 2] {
    let (a, b) = (vreinterpretq_s64_s8(a), vreinterpretq_s64_s8(b));
    [vreinterpretq_s8_s64(vtrn1q_s64(a, b)), vreinterpretq_s8_s64(vtrn2q_s64(a, b))]
}

/// Unpacks rows into a tile.
#[target_feature(enable = "neon")]
pub fn fill<F: Load>(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
    tile::fill::<F, Eights>(job, first, tile);
}

/// Multiplies a tile with all rows of activations.
#[target_feature(enable = "neon,i8mm")]
pub fn product<F: Load>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    // SAFETY: this function has the features of `lane`.
    unsafe { tile::product(job, first, tile, lane::<F>) }
}

#[target_feature(enable = "neon,i8mm")]
fn lane<F: Load>(part: &Part<'_>, lane: usize, out: &mut Sums) {
    // Of two rows of weights and two of activations: row 0 with both, row 1 with both.
    let mut sums = [[vdupq_n_f32(0.0); 2]; 8];
    for i in 0..part.groups::<F>(lane) {
        let group = part.group::<F>(lane, i);
        let x = [tokens(&group, 0), tokens(&group, 1)];
        // Written out, so that the sums stay in registers.
        sums[0] = pair::<F, 0>(&group, &x, sums[0]);
        sums[1] = pair::<F, 1>(&group, &x, sums[1]);
        sums[2] = pair::<F, 2>(&group, &x, sums[2]);
        sums[3] = pair::<F, 3>(&group, &x, sums[3]);
        sums[4] = pair::<F, 4>(&group, &x, sums[4]);
        sums[5] = pair::<F, 5>(&group, &x, sums[5]);
        sums[6] = pair::<F, 6>(&group, &x, sums[6]);
        sums[7] = pair::<F, 7>(&group, &x, sums[7]);
    }
    for t in 0..2 {
        for pair in (0..8).step_by(2) {
            let (a, b) = (sums[pair][t], sums[pair + 1][t]);
            store_floats(vuzp1q_f32(a, b), &mut out[2 * t], 2 * pair);
            store_floats(vuzp2q_f32(a, b), &mut out[2 * t + 1], 2 * pair);
        }
    }
}

/// Two rows of activations.
#[derive(Clone, Copy)]
struct Tokens {
    /// Eight codes of both, the next eight of both, and so on.
    codes: [int8x16_t; 4],
    /// Their scales, twice.
    scale: float32x4_t,
    /// Their sums, twice.
    sum: float32x4_t,
}

/// Rows `2t` and `2t + 1`.
#[inline]
#[target_feature(enable = "neon")]
fn tokens(group: &Group<'_>, t: usize) -> Tokens {
    let (x, y) = (&group.x[2 * t], &group.x[2 * t + 1]);
    let [a, b] = eights(load_codes(x[0], 0), load_codes(y[0], 0));
    let [c, d] = eights(load_codes(x[1], 0), load_codes(y[1], 0));
    let (x, y) = (&group.sides[2 * t], &group.sides[2 * t + 1]);
    Tokens { codes: [a, b, c, d], scale: twice(x.scale, y.scale), sum: twice(x.sum, y.sum) }
}

/// Adds the products of a group for two of its rows.
#[inline]
#[target_feature(enable = "neon,i8mm")]
fn pair<F: Load, const PAIR: usize>(
    group: &Group<'_>,
    x: &[Tokens; 2],
    mut sums: [float32x4_t; 2],
) -> [float32x4_t; 2] {
    let run = if F::FINE { 2 } else { 4 };
    let (scale, offset) = (each_twice(&group.scale.0, 2 * PAIR), each_twice(&group.offset.0, 2 * PAIR));
    for t in 0..2 {
        let mut dots = vdupq_n_s32(0);
        for v in 0..run {
            dots = smmla(dots, group.piece(PAIR * run + v), x[t].codes[v]);
        }
        sums[t] = vfmaq_f32(sums[t], vmulq_f32(scale, x[t].scale), vcvtq_f32_s32(dots));
        if F::OFFSET {
            sums[t] = vfmaq_f32(sums[t], offset, x[t].sum);
        }
    }
    sums
}

/// `a b a b`
#[inline]
#[target_feature(enable = "neon")]
fn twice(a: f32, b: f32) -> float32x4_t {
    load_floats(&[a, b, a, b], 0)
}

/// Of the numbers `a b` at `at`: `a a b b`.
#[inline]
#[target_feature(enable = "neon")]
fn each_twice(x: &[f32; 16], at: usize) -> float32x4_t {
    let four = load_floats(x, at / 4 * 4);
    if at.is_multiple_of(4) { vzip1q_f32(four, four) } else { vzip2q_f32(four, four) }
}

/// Adds to `sum` the product of `a`, two rows of eight codes, and the transpose of `b`, two rows of eight codes, row by
/// row. (The intrinsic is not stable yet.)
#[inline]
#[target_feature(enable = "neon,i8mm")]
pub fn smmla(sum: int32x4_t, a: int8x16_t, b: int8x16_t) -> int32x4_t {
    let out;
    // SAFETY: the function has the instruction, which touches registers only.
    unsafe {
        asm!(
            "smmla {sum:v}.4s, {a:v}.16b, {b:v}.16b",
            sum = inlateout(vreg) sum => out, a = in(vreg) a, b = in(vreg) b,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    out
}
