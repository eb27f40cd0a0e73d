//! Many rows of activations: tiles of 32 rows of weights, whose outputs lie in the lanes of two vectors.

use super::{Pair, load_floats, store_floats};
use crate::kernels::activations::{CHUNK, COARSE_ORDER, FINE_ORDER, Line, Row, Side, chunks, code_place};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Job, TILE_ROWS, Tile, TileMut};
use std::arch::x86_64::*;

/// Rows of activations that share one reading of a tile: with two vectors of weights, what the registers hold.
const TOKENS: usize = 6;

/// Rows of activations after which a lane of a tile is read again: their codes and sums stay in the L2 cache.
const TOKENS_AT_ONCE: usize = 8 * TOKENS;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Unpacks 32 rows from `first` on; rows past the end of the job repeat its last one.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn fill<F: Format>(
    job: &Job<'_>,
    first: usize,
    tile: &mut TileMut<'_>,
    load: impl Fn(&[u8], &[u8]) -> Pair,
) {
    let whole = job.row_len / CHUNK;
    for half in 0..2 {
        let rows: [&[u8]; 16] = std::array::from_fn(|i| job.row((first + 16 * half + i).min(job.end - 1)));
        for q in 0..whole {
            let at = q * F::CHUNK_BYTES..(q + 1) * F::CHUNK_BYTES;
            for row in rows {
                // The same rows of the next tile. A prefetch may name any address.
                let next = row.as_ptr().wrapping_add(TILE_ROWS * job.row_bytes + at.start);
                for line in (0..F::CHUNK_BYTES).step_by(64) {
                    _mm_prefetch::<_MM_HINT_T1>(next.wrapping_add(line).cast());
                }
            }
            fill_chunk::<F>(std::array::from_fn(|i| &rows[i][at.clone()]), tile, q, half, &load);
        }
        if !job.row_len.is_multiple_of(CHUNK) {
            let mut padded = [[0; LONGEST]; 16];
            for (padded, row) in padded.iter_mut().zip(rows) {
                let rest = &row[whole * F::CHUNK_BYTES..];
                padded[..rest.len()].copy_from_slice(rest);
            }
            fill_chunk::<F>(std::array::from_fn(|i| &padded[i][..F::CHUNK_BYTES]), tile, whole, half, &load);
        }
    }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn fill_chunk<F: Format>(
    rows: [&[u8]; 16],
    tile: &mut TileMut<'_>,
    q: usize,
    half: usize,
    load: &impl Fn(&[u8], &[u8]) -> Pair,
) {
    // Rows are paired so that transposing leaves them in order.
    let pair = |i: usize| load(rows[i], rows[i + 4]);
    let pairs = [pair(0), pair(1), pair(2), pair(3), pair(8), pair(9), pair(10), pair(11)];
    let to_128 = _mm512_set1_epi8((128 - F::BIAS) as i8);
    for i in 0..4 {
        for part in 0..2 {
            let codes = transpose(each(&pairs, |p| if part == 0 { p.low[i] } else { p.high[i] }));
            for j in 0..8 {
                let (group, v) = (2 * i + j / 4, 4 * part + j % 4);
                let to = &mut tile.codes[tile.codes_at::<F>(q, group, v) + half].0;
                // SAFETY: the reference covers the 64 bytes written, and `storeu` asks for no alignment.
                unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), _mm512_add_epi8(codes[j], to_128)) }
            }
        }
    }
    let (order, parts) = if F::FINE { (FINE_ORDER, 2) } else { (COARSE_ORDER, 1) };
    for part in 0..parts {
        let scales = transpose(each(&pairs, |p| _mm512_castps_si512(p.scale[part])));
        let offsets = transpose(each(&pairs, |p| _mm512_castps_si512(p.offset[part])));
        for j in 0..8 {
            let at = tile.group_at::<F>(q, part, order[j]) + half;
            store_floats(_mm512_castsi512_ps(scales[j]), &mut tile.scale[at].0);
            if F::OFFSET {
                store_floats(_mm512_castsi512_ps(offsets[j]), &mut tile.offset[at].0);
            }
        }
    }
}

/// One vector of each pair. (Written out: `map` would not be compiled for this instruction set.)
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn each(p: &[Pair; 8], vector: impl Fn(&Pair) -> __m512i) -> [__m512i; 8] {
    [
        vector(&p[0]),
        vector(&p[1]),
        vector(&p[2]),
        vector(&p[3]),
        vector(&p[4]),
        vector(&p[5]),
        vector(&p[6]),
        vector(&p[7]),
    ]
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
    [
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[0], t[0]),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[1], t[1]),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[2], t[2]),
        _mm512_shuffle_i32x4::<0b10_00_10_00>(s[3], t[3]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[0], t[0]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[1], t[1]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[2], t[2]),
        _mm512_shuffle_i32x4::<0b11_01_11_01>(s[3], t[3]),
    ]
}

/// Sums of one lane of the contract for 32 outputs.
#[derive(Clone, Copy)]
struct Sums([[f32; 16]; 2]);

/// Multiplies a tile, which holds the rows from `first` on, with all rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
    let mut lanes = [[Sums([[0.0; 16]; 2]); TOKENS_AT_ONCE]; 8];
    for from in (0..job.x.count()).step_by(TOKENS_AT_ONCE) {
        let to = job.x.count().min(from + TOKENS_AT_ONCE);
        for (lane, sums) in lanes.iter_mut().enumerate() {
            let mut t = from;
            while t < to {
                let sums = &mut sums[t - from..];
                t += match to - t {
                    TOKENS.. => one_lane::<F, TOKENS>(tile, job, t, lane, sums),
                    4.. => one_lane::<F, 4>(tile, job, t, lane, sums),
                    2.. => one_lane::<F, 2>(tile, job, t, lane, sums),
                    _ => one_lane::<F, 1>(tile, job, t, lane, sums),
                };
            }
        }
        let count = TILE_ROWS.min(job.end - first);
        for t in from..to {
            let mut y = [0.0; TILE_ROWS];
            for half in 0..2 {
                let l = |lane: usize| load_floats(&lanes[lane][t - from].0[half]);
                let sum = |a, b| _mm512_add_ps(a, b);
                let even = sum(sum(l(0), l(4)), sum(l(2), l(6)));
                let odd = sum(sum(l(1), l(5)), sum(l(3), l(7)));
                let to: &mut [f32; 16] = y[16 * half..].first_chunk_mut().expect("two halves");
                store_floats(sum(sum(even, odd), _mm512_setzero_ps()), to);
            }
            job.y.write(t, first, &y[..count]);
        }
    }
}

/// The sums of the groups `lane`, `lane + 8`, ... of 32 rows of weights with `T` rows of activations from `t` on.
/// Returns `T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn one_lane<F: Format, const T: usize>(
    tile: &Tile<'_>,
    job: &Job<'_>,
    t: usize,
    lane: usize,
    out: &mut [Sums],
) -> usize {
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    let (parts, vectors, group_len) = if F::FINE { (2, 4, 16) } else { (1, 8, 32) };
    let stride = chunks(job.row_len);
    // Every eighth group; the last chunk of a row may end before this lane.
    let groups = (job.row_len.div_ceil(group_len) + 7 - lane) / 8;
    let codes = &tile.codes[lane * stride * parts * vectors * 2..][..groups * vectors * 2];
    let scale = &tile.scale[lane * stride * parts * 2..][..groups * 2];
    let offset = &tile.offset[lane * stride * parts * 2..][..groups * 2];
    let sides: [*const Side; T] = std::array::from_fn(|i| {
        let sides = if F::FINE { x[i].fine_lanes } else { x[i].coarse_lanes };
        sides[lane * stride * parts..][..groups].as_ptr()
    });
    let lines: [*const Line; T] = std::array::from_fn(|i| {
        assert_eq!(x[i].lines.len(), 4 * stride);
        x[i].lines.as_ptr()
    });
    let mut sums = [[_mm512_setzero_ps(); 2]; T];
    for g in 0..groups {
        let (q, part) = (g / parts, g % parts);
        let (group32, half) = if F::FINE { (4 * part + lane / 2, lane % 2) } else { (lane, 0) };
        let line = group32 / 2 * stride + q;
        let mut dots = [[_mm512_setzero_si512(); 2]; T];
        for i in 0..T {
            // SAFETY: there are as many sides as groups, by the slices above.
            let bias = _mm512_set1_epi32(unsafe { (*sides[i].add(g)).bias });
            dots[i] = [bias; 2];
        }
        for v in 0..vectors {
            let w = &codes[(g * vectors + v) * 2..][..2];
            let w = [load_codes(&w[0].0), load_codes(&w[1].0)];
            let at = code_place(32 * group32 + 4 * (4 * half + v)) % 64;
            for i in 0..T {
                // SAFETY: `line` lies below four times the stride, and `at` names four codes of a line.
                let four = unsafe { (*lines[i].add(line)).0.as_ptr().add(at).cast::<i32>().read_unaligned() };
                let four = _mm512_set1_epi32(four);
                dots[i][0] = _mm512_dpbusd_epi32(dots[i][0], w[0], four);
                dots[i][1] = _mm512_dpbusd_epi32(dots[i][1], w[1], four);
            }
        }
        for n in 0..2 {
            let w_scale = load_floats(&scale[2 * g + n].0);
            for i in 0..T {
                // SAFETY: as above.
                let scale = _mm512_set1_ps(unsafe { (*sides[i].add(g)).scale });
                let dot = _mm512_cvtepi32_ps(dots[i][n]);
                sums[i][n] = _mm512_fmadd_ps(_mm512_mul_ps(w_scale, scale), dot, sums[i][n]);
            }
            if F::OFFSET {
                let w_offset = load_floats(&offset[2 * g + n].0);
                for i in 0..T {
                    // SAFETY: as above.
                    let sum = _mm512_set1_ps(unsafe { (*sides[i].add(g)).sum });
                    sums[i][n] = _mm512_fmadd_ps(w_offset, sum, sums[i][n]);
                }
            }
        }
    }
    for i in 0..T {
        store_floats(sums[i][0], &mut out[i].0[0]);
        store_floats(sums[i][1], &mut out[i].0[1]);
    }
    T
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_codes(codes: &[u8; 64]) -> __m512i {
    // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm512_loadu_si512(codes.as_ptr().cast()) }
}
