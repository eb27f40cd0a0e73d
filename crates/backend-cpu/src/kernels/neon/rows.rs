//! Few rows of activations: one row of weights at a time.

use super::*;
use crate::kernels::activations::{Row, chunks};
use crate::kernels::format::Chunk;
use crate::kernels::plain;

/// Computes all outputs of a job.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub fn product<F: Format>(job: &Job<'_>) {
    for n in job.first..job.end {
        let mut t = 0;
        while t < job.x.count() {
            t += match job.x.count() - t {
                4.. => block::<F, 4>(job, n, t),
                2.. => block::<F, 2>(job, n, t),
                _ => block::<F, 1>(job, n, t),
            };
        }
    }
}

/// Multiplies a row of weights with `T` rows of activations from `t` on; returns `T`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn block<F: Format, const T: usize>(job: &Job<'_>, n: usize, t: usize) -> usize {
    let row = job.row(n);
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    let mut sums = [[vdupq_n_f32(0.0); 2]; T];
    let mut chunk = Chunk::ZERO;
    for q in 0..chunks(job.row_len) {
        plain::expand::<F>(row, q, &mut chunk);
        for i in 0..T {
            sums[i] = step::<F>(&chunk, &x[i], q, sums[i]);
        }
    }
    for i in 0..T {
        let mut l = [0.0; 8];
        store_floats(sums[i][0], &mut l);
        store_floats(sums[i][1], &mut l[4..]);
        let y = if F::FINE {
            // In order: 0 1 4 5 2 3 6 7.
            ((l[0] + l[2]) + (l[4] + l[6])) + ((l[1] + l[3]) + (l[5] + l[7]))
        } else {
            // In order: 0 2 4 6 1 3 5 7.
            ((l[0] + l[2]) + (l[1] + l[3])) + ((l[4] + l[6]) + (l[5] + l[7]))
        };
        job.y.write(t + i, n, &[y + 0.0]);
    }
    T
}

/// Adds the products of one chunk with one row of activations.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn step<F: Format>(w: &Chunk, x: &Row<'_>, q: usize, mut sums: [float32x4_t; 2]) -> [float32x4_t; 2] {
    // The products of sixteen codes: those of group `odd` of line `i`, first or last ones.
    let part = |sum: int32x4_t, i: usize, last: usize, odd: usize| {
        let at = 32 * last + 16 * odd;
        dot(sum, codes::<F>(w, 64 * i + at), load_codes(&x.line(q, i).0[at..]))
    };
    let zero = vdupq_n_s32(0);
    for half in 0..if F::FINE { 2 } else { 1 } {
        for odd in 0..2 {
            let dots = if F::FINE {
                let (i, j) = (2 * half, 2 * half + 1);
                [part(zero, i, 0, odd), part(zero, i, 1, odd), part(zero, j, 0, odd), part(zero, j, 1, odd)]
            } else {
                let whole = |i| part(part(zero, i, 0, odd), i, 1, odd);
                [whole(0), whole(1), whole(2), whole(3)]
            };
            let dots = vpaddq_s32(vpaddq_s32(dots[0], dots[1]), vpaddq_s32(dots[2], dots[3]));
            let (fine, coarse, at) = (&x.fine[q], &x.coarse[q], 4 * odd);
            let (scale, bias, sum) = if F::FINE {
                (&fine.scale[half], &fine.bias[half], &fine.sum[half])
            } else {
                (&coarse.scale, &coarse.bias, &coarse.sum)
            };
            let dots = match F::BIAS {
                0 | 128 => dots,
                _ => vaddq_s32(dots, load_bias::<F>(&bias[at..])),
            };
            let scale = vmulq_f32(load_floats(&w.scale[8 * half + at..]), load_floats(&scale[at..]));
            sums[odd] = vfmaq_f32(sums[odd], scale, vcvtq_f32_s32(dots));
            if F::OFFSET {
                let offset = load_floats(&w.offset[8 * half + at..]);
                sums[odd] = vfmaq_f32(sums[odd], offset, load_floats(&sum[at..]));
            }
        }
    }
    sums
}

/// What takes the bias of the format back.
#[inline]
#[target_feature(enable = "neon")]
fn load_bias<F: Format>(bias: &[i32]) -> int32x4_t {
    let bias: &[i32; 4] = bias.first_chunk().expect("four numbers");
    // SAFETY: the reference covers the 16 bytes read.
    let bias = unsafe { vld1q_s32(bias.as_ptr()) };
    match F::BIAS {
        1 => vshrq_n_s32::<7>(bias),
        8 => vshrq_n_s32::<4>(bias),
        16 => vshrq_n_s32::<3>(bias),
        _ => vshrq_n_s32::<2>(bias),
    }
}

/// Sixteen codes of a chunk, signed where the bias is 128.
#[inline]
#[target_feature(enable = "neon")]
fn codes<F: Format>(w: &Chunk, at: usize) -> int8x16_t {
    let codes = load_bytes(w.codes[at..].first_chunk().expect("sixteen codes"));
    if F::BIAS == 128 { veorq_s8(codes, vdupq_n_s8(-128)) } else { codes }
}
