//! Many rows of activations: tiles of 32 rows of weights, four of them in a vector.

use super::*;
use crate::kernels::activations::{Row, Side, chunks, code_place};
use crate::kernels::matmul::TILE_ROWS;

/// Rows of activations that share one reading of a tile.
const TOKENS: usize = 4;

/// Vectors of four rows that share one reading of activations.
const VECTORS: usize = 4;

/// Multiplies a tile, which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "neon,dotprod")]
pub fn product<F: Format>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    let mut t = 0;
    while t < job.x.count() {
        t += match job.x.count() - t {
            TOKENS.. => block::<F, TOKENS>(job, first, tile, t),
            2.. => block::<F, 2>(job, first, tile, t),
            _ => block::<F, 1>(job, first, tile, t),
        };
    }
}

/// The whole tile for `T` rows of activations from `t` on; returns `T`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn block<F: Format, const T: usize>(job: &Job<'_>, first: usize, tile: &Tile<'_>, t: usize) -> usize {
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    for half in 0..TILE_ROWS / 16 {
        let n = first + 16 * half;
        if n >= job.end {
            break;
        }
        let mut lanes = [[[0.0; 16]; T]; 8];
        for (lane, sums) in lanes.iter_mut().enumerate() {
            one_lane::<F, T>(tile, &x, job.row_len, lane, half, sums);
        }
        for i in 0..T {
            let l = &lanes;
            let y: [f32; 16] = std::array::from_fn(|r| {
                let even = (l[0][i][r] + l[4][i][r]) + (l[2][i][r] + l[6][i][r]);
                let odd = (l[1][i][r] + l[5][i][r]) + (l[3][i][r] + l[7][i][r]);
                (even + odd) + 0.0
            });
            job.y.write(t + i, n, &y[..16.min(job.end - n)]);
        }
    }
    T
}

/// The sums of the groups `lane`, `lane + 8`, ... of sixteen rows of weights with `T` rows of activations.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn one_lane<F: Format, const T: usize>(
    tile: &Tile<'_>,
    x: &[Row<'_>; T],
    row_len: usize,
    lane: usize,
    half_tile: usize,
    out: &mut [[f32; 16]; T],
) {
    let (parts, vectors, group_len) = if F::FINE { (2, 4, 16) } else { (1, 8, 32) };
    let stride = chunks(row_len);
    let groups = (row_len.div_ceil(group_len) + 7 - lane) / 8;
    let start = lane * stride * parts;
    let mut sums = [[vdupq_n_f32(0.0); VECTORS]; T];
    for g in 0..groups {
        let (q, part) = (g / parts, g % parts);
        let (group32, half) = if F::FINE { (4 * part + lane / 2, lane % 2) } else { (lane, 0) };
        let mut sides = [Side::default(); T];
        let mut dots = [[vdupq_n_s32(0); VECTORS]; T];
        for i in 0..T {
            sides[i] = if F::FINE { x[i].fine_lanes[start + g] } else { x[i].coarse_lanes[start + g] };
            if F::BIAS != 128 {
                dots[i] = [vdupq_n_s32(sides[i].bias / 128 * F::BIAS); VECTORS];
            }
        }
        for v in 0..vectors {
            let fours = &tile.codes[((start + g) * vectors + v) * 2 + half_tile].0;
            let mut w = [vdupq_n_s8(0); VECTORS];
            for r in 0..VECTORS {
                w[r] = load_bytes(fours[16 * r..].first_chunk().expect("four vectors"));
            }
            let at = code_place(32 * group32 + 4 * (4 * half + v));
            for i in 0..T {
                let line = &x[i].lines[at / 64 * stride + q].0;
                let four: [i8; 4] = *line[at % 64..].first_chunk().expect("four codes of a line");
                let four = vreinterpretq_s8_s32(vdupq_n_s32(i32::from_ne_bytes(four.map(|c| c as u8))));
                for r in 0..VECTORS {
                    dots[i][r] = dot(dots[i][r], w[r], four);
                }
            }
        }
        let at = (start + g) * 2 + half_tile;
        for r in 0..VECTORS {
            let scale = load_floats(&tile.scale[at].0[4 * r..]);
            let offset = load_floats(&tile.offset[at].0[4 * r..]);
            for i in 0..T {
                let scale = vmulq_n_f32(scale, sides[i].scale);
                sums[i][r] = vfmaq_f32(sums[i][r], scale, vcvtq_f32_s32(dots[i][r]));
                if F::OFFSET {
                    sums[i][r] = vfmaq_n_f32(sums[i][r], offset, sides[i].sum);
                }
            }
        }
    }
    for (out, sums) in out.iter_mut().zip(sums) {
        for r in 0..VECTORS {
            store_floats(sums[r], &mut out[4 * r..]);
        }
    }
}
