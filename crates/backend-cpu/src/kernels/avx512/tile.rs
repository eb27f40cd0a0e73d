//! Many rows of activations: tiles of sixteen rows of weights, whose outputs lie in the lanes of a vector.

use super::{Pair, load_floats, store_floats};
use crate::kernels::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, Row, chunks, code_place};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Job, TILE_ROWS, TileChunk};
use std::arch::x86_64::*;

/// Rows of activations that share one reading of a tile.
const TOKENS: usize = 8;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Unpacks sixteen rows from `first` on; rows past the end of the job repeat its last one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn fill<F: Format>(
    job: &Job<'_>,
    first: usize,
    tile: &mut [TileChunk],
    load: impl Fn(&[u8], &[u8]) -> Pair,
) {
    let rows: [&[u8]; TILE_ROWS] = std::array::from_fn(|i| job.row((first + i).min(job.end - 1)));
    let whole = job.row_len / CHUNK;
    for (q, out) in tile[..whole].iter_mut().enumerate() {
        let at = q * F::CHUNK_BYTES..(q + 1) * F::CHUNK_BYTES;
        fill_chunk::<F>(std::array::from_fn(|i| &rows[i][at.clone()]), out, &load);
    }
    if job.row_len % CHUNK > 0 {
        let mut padded = [[0; LONGEST]; TILE_ROWS];
        for (padded, row) in padded.iter_mut().zip(rows) {
            let rest = &row[whole * F::CHUNK_BYTES..];
            padded[..rest.len()].copy_from_slice(rest);
        }
        fill_chunk::<F>(std::array::from_fn(|i| &padded[i][..F::CHUNK_BYTES]), &mut tile[whole], &load);
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fill_chunk<F: Format>(
    rows: [&[u8]; TILE_ROWS],
    out: &mut TileChunk,
    load: &impl Fn(&[u8], &[u8]) -> Pair,
) {
    // Rows are paired so that transposing leaves them in order.
    let pairs = [0, 1, 2, 3, 8, 9, 10, 11].map(|i| load(rows[i], rows[i + 4]));
    let to_128 = _mm512_set1_epi8((128 - F::BIAS) as i8);
    for i in 0..4 {
        for half in 0..2 {
            let codes = transpose(pairs.map(|p| if half == 0 { p.low[i] } else { p.high[i] }));
            for (j, codes) in codes.into_iter().enumerate() {
                let to = &mut out.codes[2 * i + j / 4][4 * half + j % 4];
                // SAFETY: the reference covers the 64 bytes written, and `storeu` asks for no alignment.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_add_epi8(codes, to_128)) }
            }
        }
    }
    let order = if F::FINE { FINE_ORDER } else { COARSE_ORDER };
    for half in 0..if F::FINE { 2 } else { 1 } {
        let scales = transpose(pairs.map(|p| _mm512_castps_si512(p.scale[half])));
        for (scales, group) in scales.into_iter().zip(order) {
            store_floats(_mm512_castsi512_ps(scales), &mut out.scale[8 * half + group]);
        }
        if F::OFFSET {
            let offsets = transpose(pairs.map(|p| _mm512_castps_si512(p.offset[half])));
            for (offsets, group) in offsets.into_iter().zip(order) {
                store_floats(_mm512_castsi512_ps(offsets), &mut out.offset[8 * half + group]);
            }
        }
    }
}

/// Eight vectors, each with the integers 0 to 7 of two rows `a` and `b`, to vectors of integer 0, 1, ... of sixteen rows:
/// four `a`, their `b`, the other four `a`, their `b`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn transpose(z: [__m512i; 8]) -> [__m512i; 8] {
    let in_lanes = |z: [__m512i; 4]| {
        let (a, b) = (_mm512_unpacklo_epi32(z[0], z[1]), _mm512_unpackhi_epi32(z[0], z[1]));
        let (c, d) = (_mm512_unpacklo_epi32(z[2], z[3]), _mm512_unpackhi_epi32(z[2], z[3]));
        [
            _mm512_unpacklo_epi64(a, c),
            _mm512_unpackhi_epi64(a, c),
            _mm512_unpacklo_epi64(b, d),
            _mm512_unpackhi_epi64(b, d),
        ]
    };
    let (s, t) = (in_lanes([z[0], z[1], z[2], z[3]]), in_lanes([z[4], z[5], z[6], z[7]]));
    std::array::from_fn(|i| {
        if i < 4 {
            _mm512_shuffle_i32x4::<0b10_00_10_00>(s[i], t[i])
        } else {
            _mm512_shuffle_i32x4::<0b11_01_11_01>(s[i - 4], t[i - 4])
        }
    })
}

/// Multiplies tiles, the first of which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, first: usize, tiles: &[TileChunk]) {
    let stride = chunks(job.row_len);
    let mut t = 0;
    while t < job.x.count() {
        t += match job.x.count() - t {
            TOKENS.. => block::<F, TOKENS>(job, first, tiles, stride, t),
            4.. => block::<F, 4>(job, first, tiles, stride, t),
            2.. => block::<F, 2>(job, first, tiles, stride, t),
            _ => block::<F, 1>(job, first, tiles, stride, t),
        };
    }
}

/// All tiles for `T` rows of activations from `t` on; returns `T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn block<F: Format, const T: usize>(
    job: &Job<'_>,
    first: usize,
    tiles: &[TileChunk],
    stride: usize,
    t: usize,
) -> usize {
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    for (i, tile) in tiles.chunks_exact(stride).enumerate() {
        let n = first + TILE_ROWS * i;
        let count = TILE_ROWS.min(job.end - n);
        let mut lanes = [[[0.0; TILE_ROWS]; T]; 8];
        for (lane, sums) in lanes.iter_mut().enumerate() {
            *sums = one_lane::<F, T>(tile, &x, job.row_len, lane);
        }
        for i in 0..T {
            let l = |lane: usize| load_floats(&lanes[lane][i]);
            let sum = |a, b| _mm512_add_ps(a, b);
            let even = sum(sum(l(0), l(4)), sum(l(2), l(6)));
            let odd = sum(sum(l(1), l(5)), sum(l(3), l(7)));
            let mut y = [0.0; TILE_ROWS];
            store_floats(sum(sum(even, odd), _mm512_setzero_ps()), &mut y);
            job.y.write(t + i, n, &y[..count]);
        }
    }
    T
}

/// The sums of the groups `lane`, `lane + 8`, ... of sixteen rows of weights with `T` rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn one_lane<F: Format, const T: usize>(
    tile: &[TileChunk],
    x: &[Row<'_>; T],
    row_len: usize,
    lane: usize,
) -> [[f32; TILE_ROWS]; T] {
    let mut sums = [_mm512_setzero_ps(); T];
    let group_len = if F::FINE { 16 } else { 32 };
    let groups = row_len.div_ceil(group_len);
    let parts = if F::FINE { 2 } else { 1 };
    assert!(x.iter().all(|x| x.codes.len() >= tile.len() && x.coarse.len() >= tile.len()));
    for group in (lane..groups).step_by(8) {
        let (q, part) = (group / 8 / parts, group / 8 % parts);
        let w = &tile[q];
        let within = lane + 8 * part;
        let (group32, half) = if F::FINE { (within / 2, within % 2) } else { (lane, 0) };
        let vectors = if F::FINE { 4 } else { 8 };
        let place = if F::FINE { fine_place(lane) } else { lane % 2 * 4 + lane / 2 };
        let mut dots = [_mm512_setzero_si512(); T];
        for i in 0..T {
            // SAFETY: every row has as many chunks as the tile, by the assertion.
            let bias = unsafe {
                if F::FINE {
                    x[i].fine.get_unchecked(q).bias[part][place]
                } else {
                    x[i].coarse.get_unchecked(q).bias[place]
                }
            };
            dots[i] = _mm512_set1_epi32(bias);
        }
        for v in 0..vectors {
            let v = 4 * half + v;
            // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
            let codes = unsafe { _mm512_loadu_si512(w.codes[group32][v].as_ptr().cast()) };
            let at = code_place(32 * group32 + 4 * v);
            for i in 0..T {
                // SAFETY: as above, and `at` is the place of four codes of a chunk.
                let four = unsafe { x[i].codes.get_unchecked(q).0.as_ptr().add(at).cast::<i32>().read_unaligned() };
                dots[i] = _mm512_dpbusd_epi32(dots[i], codes, _mm512_set1_epi32(four));
            }
        }
        let (scale, offset) = (load_floats(&w.scale[within]), load_floats(&w.offset[within]));
        for i in 0..T {
            // SAFETY: as above.
            let (x_scale, x_sum) = unsafe {
                if F::FINE {
                    let side = x[i].fine.get_unchecked(q);
                    (side.scale[part][place], side.sum[part][place])
                } else {
                    let side = x[i].coarse.get_unchecked(q);
                    (side.scale[place], side.sum[place])
                }
            };
            let scale = _mm512_mul_ps(scale, _mm512_set1_ps(x_scale));
            sums[i] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots[i]), sums[i]);
            if F::OFFSET {
                sums[i] = _mm512_fmadd_ps(offset, _mm512_set1_ps(x_sum), sums[i]);
            }
        }
    }
    let mut out = [[0.0; TILE_ROWS]; T];
    for (out, sum) in out.iter_mut().zip(sums) {
        store_floats(sum, out);
    }
    out
}

/// Where group `lane` of 16 lies in half a chunk.
fn fine_place(lane: usize) -> usize {
    lane / 2 % 2 * 4 + lane / 4 * 2 + lane % 2
}
