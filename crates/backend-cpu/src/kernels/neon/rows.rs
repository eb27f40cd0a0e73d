//! Few rows of activations: two rows of weights at a time, straight from their blocks.

use super::dot::sdot;
use super::{Load, Sides, load_codes, load_floats, store_floats};
use crate::kernels::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, Row};
use crate::kernels::matmul::{Job, Quad};
use crate::kernels::scalar::tree;
use std::arch::aarch64::*;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Computes all outputs of a job.
#[target_feature(enable = "neon,dotprod")]
pub fn product<F: Load>(job: &Job<'_>, _: &mut [Quad]) {
    let mut n = job.first;
    while n < job.end {
        n += if n + 1 < job.end { few::<F, 2>(job, n) } else { few::<F, 1>(job, n) };
    }
}

/// Multiplies `R` rows of weights from `n` on with all rows of activations; returns `R`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn few<F: Load, const R: usize>(job: &Job<'_>, n: usize) -> usize {
    let mut t = 0;
    while t < job.x.count() {
        t += if t + 1 < job.x.count() { block::<F, R, 2>(job, n, t) } else { block::<F, R, 1>(job, n, t) };
    }
    R
}

/// The sums of one output: lanes of the contract in `COARSE_ORDER` or `FINE_ORDER`.
type Sums = [float32x4_t; 2];

/// Multiplies `R` rows of weights with `T` rows of activations; returns `T`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn block<F: Load, const R: usize, const T: usize>(job: &Job<'_>, n: usize, t: usize) -> usize {
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    let rows: [&[u8]; R] = std::array::from_fn(|r| job.row(n + r));
    let mut sums = [[[vdupq_n_f32(0.0); 2]; T]; R];
    let whole = job.row_len / CHUNK;
    // What is left of a row, filled up with zeros.
    let padded = rows.map(|row| padded(&row[whole * F::CHUNK_BYTES..]));
    for q in 0..job.row_len.div_ceil(CHUNK) {
        let chunks = std::array::from_fn(|r| {
            let from = if q < whole { &rows[r][q * F::CHUNK_BYTES..] } else { &padded[r] };
            &from[..F::CHUNK_BYTES]
        });
        step::<F, R, T>(chunks, &x, q, &mut sums);
    }
    for i in 0..T {
        let y: [f32; R] = std::array::from_fn(|r| total::<F>(sums[r][i]));
        job.y.write(t + i, n, &y);
    }
    T
}

/// What is left of a row, if anything, filled up with zeros.
pub fn padded(rest: &[u8]) -> [u8; LONGEST] {
    let mut padded = [0; LONGEST];
    padded[..rest.len()].copy_from_slice(rest);
    padded
}

/// Adds the products of a chunk.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn step<F: Load, const R: usize, const T: usize>(
    chunks: [&[u8]; R],
    x: &[Row<'_>; T],
    q: usize,
    sums: &mut [[Sums; T]; R],
) {
    // Written out, as an index of a loop would be one at run time.
    let pairs = [
        pair::<F, R, T, 0>(chunks, x, q),
        pair::<F, R, T, 1>(chunks, x, q),
        pair::<F, R, T, 2>(chunks, x, q),
        pair::<F, R, T, 3>(chunks, x, q),
    ];
    for r in 0..R {
        // SAFETY: this function has NEON.
        let sides = unsafe { F::sides(chunks[r]) };
        for t in 0..T {
            let half = |parity: usize, h: usize| {
                vpaddq_s32(pairs[2 * h][r][t][parity], pairs[2 * h + 1][r][t][parity])
            };
            let sums = &mut sums[r][t];
            if F::FINE {
                let x = &x[t].fine[q];
                for h in 0..2 {
                    let dots = [half(0, h), half(1, h)];
                    scaled::<F>(dots, &sides, 2 * h, (&x.scale[h], &x.bias[h], &x.sum[h]), sums);
                }
            } else {
                let x = &x[t].coarse[q];
                let dots = [vpaddq_s32(half(0, 0), half(0, 1)), vpaddq_s32(half(1, 0), half(1, 1))];
                scaled::<F>(dots, &sides, 0, (&x.scale, &x.bias, &x.sum), sums);
            }
        }
    }
}

/// Multiplies pair `I` of groups: the integers whose sums are the dot products of its even and of its odd group.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn pair<F: Load, const R: usize, const T: usize, const I: usize>(
    chunks: [&[u8]; R],
    x: &[Row<'_>; T],
    q: usize,
) -> [[[int32x4_t; 2]; T]; R] {
    let zero = vdupq_n_s32(0);
    let mut out = [[[zero; 2]; T]; R];
    // SAFETY: this function has NEON.
    let weights = chunks.map(|chunk| unsafe { F::codes::<I>(chunk) });
    for t in 0..T {
        let line = &x[t].line(q, I).0;
        let x = [load_codes(line, 0), load_codes(line, 16), load_codes(line, 32), load_codes(line, 48)];
        for r in 0..R {
            let w = weights[r];
            let (even, odd) = (sdot(zero, w[0], x[0]), sdot(zero, w[1], x[1]));
            out[r][t] = if F::FINE {
                [vpaddq_s32(even, sdot(zero, w[2], x[2])), vpaddq_s32(odd, sdot(zero, w[3], x[3]))]
            } else {
                [sdot(even, w[2], x[2]), sdot(odd, w[3], x[3])]
            };
        }
    }
    out
}

/// Takes back what was added to the codes, scales eight dot products and adds them; the scales of their groups of weights
/// are vectors `first` and `first + 1` of `sides`.
#[inline]
#[target_feature(enable = "neon")]
fn scaled<F: Load>(
    dots: [int32x4_t; 2],
    sides: &Sides,
    first: usize,
    (x_scale, x_bias, x_sum): (&[f32; 8], &[i32; 8], &[f32; 8]),
    sums: &mut Sums,
) {
    for v in 0..2 {
        let bias: &[i32; 4] = x_bias[4 * v..].first_chunk().expect("two fours");
        // SAFETY: the reference covers the 16 bytes read, and the load asks for no alignment.
        let bias = unsafe { vld1q_s32(bias.as_ptr()) };
        // The bias is -128 times the sum of the codes.
        let dots = match F::ADDED {
            0 => dots[v],
            1 => vaddq_s32(dots[v], vshrq_n_s32::<7>(bias)),
            8 => vaddq_s32(dots[v], vshrq_n_s32::<4>(bias)),
            16 => vaddq_s32(dots[v], vshrq_n_s32::<3>(bias)),
            _ => vaddq_s32(dots[v], vshrq_n_s32::<2>(bias)),
        };
        let scale = vmulq_f32(sides.scale[first + v], load_floats(x_scale, 4 * v));
        sums[v] = vfmaq_f32(sums[v], scale, vcvtq_f32_s32(dots));
        if F::OFFSET {
            sums[v] = vfmaq_f32(sums[v], sides.offset[first + v], load_floats(x_sum, 4 * v));
        }
    }
}

/// The fixed tree over the lanes.
#[inline]
#[target_feature(enable = "neon")]
fn total<F: Load>(sums: Sums) -> f32 {
    let (mut stored, mut lanes) = ([0.0; 8], [0.0; 8]);
    store_floats(sums[0], &mut stored, 0);
    store_floats(sums[1], &mut stored, 4);
    for (sum, lane) in stored.into_iter().zip(if F::FINE { FINE_ORDER } else { COARSE_ORDER }) {
        lanes[lane] = sum;
    }
    tree(&lanes)
}
