//! Many rows of activations: tiles of 32 rows of weights, eight of them in a vector.

use super::*;
use crate::kernels::activations::{Row, Side, chunks, code_place};
use crate::kernels::matmul::TILE_ROWS;

/// Rows of activations that share one reading of eight rows of a tile.
const TOKENS: usize = 4;

/// Multiplies a tile, which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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
#[target_feature(enable = "avx2,fma,f16c")]
fn block<F: Format, const T: usize>(job: &Job<'_>, first: usize, tile: &Tile<'_>, t: usize) -> usize {
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    for eight in 0..TILE_ROWS / 8 {
        let n = first + 8 * eight;
        if n >= job.end {
            break;
        }
        let mut lanes = [[[0.0; 8]; T]; 8];
        for (lane, sums) in lanes.iter_mut().enumerate() {
            one_lane::<F, T>(tile, &x, job.row_len, lane, eight, sums);
        }
        for i in 0..T {
            let l = |lane: usize| load_floats(&lanes[lane][i]);
            let sum = |a, b| _mm256_add_ps(a, b);
            let even = sum(sum(l(0), l(4)), sum(l(2), l(6)));
            let odd = sum(sum(l(1), l(5)), sum(l(3), l(7)));
            let mut y = [0.0; 8];
            store_floats(sum(sum(even, odd), _mm256_setzero_ps()), &mut y);
            job.y.write(t + i, n, &y[..8.min(job.end - n)]);
        }
    }
    T
}

/// The sums of the groups `lane`, `lane + 8`, ... of eight rows of weights with `T` rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn one_lane<F: Format, const T: usize>(
    tile: &Tile<'_>,
    x: &[Row<'_>; T],
    row_len: usize,
    lane: usize,
    eight: usize,
    out: &mut [[f32; 8]; T],
) {
    let (parts, vectors, group_len) = if F::FINE { (2, 4, 16) } else { (1, 8, 32) };
    let stride = chunks(row_len);
    let groups = (row_len.div_ceil(group_len) + 7 - lane) / 8;
    let start = lane * stride * parts;
    let ones = _mm256_set1_epi16(1);
    let depth = if F::BIAS == 128 { 1 } else { pairs_in_16_bits(F::TOP).min(vectors) };
    let mut sums = [_mm256_setzero_ps(); T];
    for g in 0..groups {
        let (q, part) = (g / parts, g % parts);
        let (group32, half) = if F::FINE { (4 * part + lane / 2, lane % 2) } else { (lane, 0) };
        let mut sides = [Side::default(); T];
        let mut dots = [_mm256_setzero_si256(); T];
        for i in 0..T {
            sides[i] = if F::FINE { x[i].fine_lanes[start + g] } else { x[i].coarse_lanes[start + g] };
            if F::BIAS != 128 {
                dots[i] = _mm256_set1_epi32(sides[i].bias / 128 * F::BIAS);
            }
        }
        for from in (0..vectors).step_by(depth) {
            let mut short = [_mm256_setzero_si256(); T];
            for v in from..vectors.min(from + depth) {
                let fours = &tile.codes[((start + g) * vectors + v) * 2 + eight / 2].0;
                let w = load_bytes(fours[eight % 2 * 32..].first_chunk().expect("two halves"));
                let at = code_place(32 * group32 + 4 * (4 * half + v));
                for i in 0..T {
                    let line = &x[i].lines[at / 64 * stride + q].0;
                    let four: [i8; 4] = *line[at % 64..].first_chunk().expect("four codes of a line");
                    let four = _mm256_set1_epi32(i32::from_ne_bytes(four.map(|c| c as u8)));
                    short[i] = _mm256_add_epi16(short[i], pairs::<F>(w, four));
                }
            }
            for i in 0..T {
                dots[i] = _mm256_add_epi32(dots[i], _mm256_madd_epi16(short[i], ones));
            }
        }
        let at = (start + g) * 2 + eight / 2;
        let half_of = |x: &[f32; 16]| load_floats(x[eight % 2 * 8..].first_chunk().expect("two halves"));
        let scale = half_of(&tile.scale[at].0);
        let offset = half_of(&tile.offset[at].0);
        for i in 0..T {
            let scale = _mm256_mul_ps(scale, _mm256_set1_ps(sides[i].scale));
            sums[i] = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots[i]), sums[i]);
            if F::OFFSET {
                sums[i] = _mm256_fmadd_ps(offset, _mm256_set1_ps(sides[i].sum), sums[i]);
            }
        }
    }
    for (out, sum) in out.iter_mut().zip(sums) {
        store_floats(sum, out);
    }
}
