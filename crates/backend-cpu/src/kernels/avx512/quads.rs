//! Some rows of activations, four at a time: a vector holds four places, two groups of each of two rows of weights, and each
//! place the sums of four rows of activations.
//!
//! What a file of an encoding loads is multiplied as it comes, with no transposing: four codes of each place are copied to
//! all four sums of their place, one shuffle for four rows of activations or for all of several quads, and a group is summed
//! up within its place. Activations are laid out for that once for all rows of weights.

use super::rows::last_chunk;
use super::tile::{Ahead, kind, shift};
use super::{Pair, PairFn, store_floats};
use crate::kernels::activations::{CHUNK, Coarse, Fine, Line, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::{Job, MAX_QUADS, Quad};
use std::arch::x86_64::*;

/// Rows of activations in a quad.
const TOKENS: usize = 4;

/// Quads that share one unpacking: what the registers hold.
const QUADS: usize = MAX_QUADS;

/// Rows of weights that share one reading of a stretch of activations.
const ROWS: usize = 32;

/// Chunks of quads that stay in the L1 cache while [`ROWS`] rows of weights pass.
const STRETCH: usize = 16;

/// The sums of a pair of rows of weights and of `Q` quads. Number `k` holds groups `2k` and `2k + 1` of 32, or those of
/// 16 that `FINE_ORDER` has at `k` and `4 + k`.
type Sums<const Q: usize> = [[__m512; 4]; Q];

/// [`Quad`]s of a chunk: for each of its four or eight steps eight or four of codes, then scales, biases and sums.
const fn quads<const FINE: bool>() -> usize {
    if FINE { 8 * 7 } else { 4 * 11 }
}

/// What is known of a format besides its kind.
#[derive(Clone, Copy)]
struct Chunks {
    load: PairFn,
    bytes: usize,
    shift: i32,
}

/// Computes all outputs of a job. `room` takes at least as many quads as the activations make.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, room: &mut [Quad], load: PairFn) {
    let of = Chunks { load, bytes: F::CHUNK_BYTES, shift: shift::<F>() };
    kind!(F, whole(job, room, of));
}

#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn whole<const FINE: bool, const OFFSET: bool, const BIASED: bool>(
    job: &Job<'_>,
    room: &mut [Quad],
    of: Chunks,
) {
    let len = chunks(job.row_len) * quads::<FINE>();
    let all = job.x.count().div_ceil(TOKENS);
    let passes = all.div_ceil(QUADS);
    let mut first = 0;
    for pass in 0..passes {
        // Passes of about the same size.
        let count = (pass + 1) * all / passes - first;
        for (i, to) in room.chunks_exact_mut(len).take(count).enumerate() {
            pack::<FINE>(job, (first + i) * TOKENS, of.shift, to);
        }
        let x = &room[..count * len];
        match count {
            1 => matrix::<FINE, OFFSET, BIASED, 1>(job, first * TOKENS, x, of),
            2 => matrix::<FINE, OFFSET, BIASED, 2>(job, first * TOKENS, x, of),
            3 => matrix::<FINE, OFFSET, BIASED, 3>(job, first * TOKENS, x, of),
            _ => matrix::<FINE, OFFSET, BIASED, QUADS>(job, first * TOKENS, x, of),
        }
        first += count;
    }
}

/// Lays out four rows of activations from `t` on; those that are not there are zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn pack<const FINE: bool>(job: &Job<'_>, t: usize, shift: i32, to: &mut [Quad]) {
    let none = (&Line([0; 64]), &Coarse::default(), &Fine::default());
    let count = TOKENS.min(job.x.count() - t);
    for (q, to) in to.chunks_exact_mut(quads::<FINE>()).enumerate() {
        let rows: [_; TOKENS] = std::array::from_fn(|i| (i < count).then(|| job.x.row(t + i)));
        for k in 0..4 {
            let lines = rows.each_ref().map(|row| row.as_ref().map_or(none.0, |row| row.line(q, k)));
            let codes = [transposed(lines, 0), transposed(lines, 1)];
            let steps = &mut to[k * quads::<FINE>() / 4..][..quads::<FINE>() / 4];
            if FINE {
                for (half, step) in steps.chunks_exact_mut(7).enumerate() {
                    step[..4].copy_from_slice(&codes[half]);
                    let (part, at) = (k / 2, k % 2 * 2 + half);
                    let sides = rows.each_ref().map(|row| {
                        let fine = row.as_ref().map_or(none.2, |row| &row.fine[q]);
                        (&fine.scale[part], &fine.bias[part], &fine.sum[part])
                    });
                    pack_sides(sides, at, shift, &mut step[4..]);
                }
            } else {
                steps[..4].copy_from_slice(&codes[0]);
                steps[4..8].copy_from_slice(&codes[1]);
                let sides = rows.each_ref().map(|row| {
                    let coarse = row.as_ref().map_or(none.1, |row| &row.coarse[q]);
                    (&coarse.scale, &coarse.bias, &coarse.sum)
                });
                pack_sides(sides, k, shift, &mut steps[8..]);
            }
        }
    }
}

/// Half `half` of four lines: quad `j` has codes `4j` to `4j + 3` of the sixteen of both groups, of four rows.
#[inline]
#[target_feature(enable = "avx2")]
fn transposed(lines: [&Line; TOKENS], half: usize) -> [Quad; 4] {
    let [a, b, c, d] = lines.map(|line| {
        let codes: &[i8; 32] = line.0[32 * half..].first_chunk().expect("a line has two halves");
        // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
        unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
    });
    let (ab, cd) = (_mm256_unpacklo_epi32(a, b), _mm256_unpacklo_epi32(c, d));
    let (ab_high, cd_high) = (_mm256_unpackhi_epi32(a, b), _mm256_unpackhi_epi32(c, d));
    let quads = [
        _mm256_unpacklo_epi64(ab, cd),
        _mm256_unpackhi_epi64(ab, cd),
        _mm256_unpacklo_epi64(ab_high, cd_high),
        _mm256_unpackhi_epi64(ab_high, cd_high),
    ];
    quads.map(|quad| {
        let mut out = Quad([0; 32]);
        // SAFETY: the reference covers the 32 bytes written, and `storeu` asks for no alignment.
        unsafe { _mm256_storeu_si256(out.0.as_mut_ptr().cast(), quad) };
        out
    })
}

/// What belongs to the groups at `at` and `4 + at`: scales, biases as large as those of the format, sums.
#[inline]
fn pack_sides(sides: [(&[f32; 8], &[i32; 8], &[f32; 8]); TOKENS], at: usize, shift: i32, to: &mut [Quad]) {
    for (i, (scale, bias, sum)) in sides.into_iter().enumerate() {
        for (place, group) in [at, 4 + at].into_iter().enumerate() {
            let bytes = 16 * place + 4 * i..16 * place + 4 * i + 4;
            to[0].0[bytes.clone()].copy_from_slice(&scale[group].to_ne_bytes());
            to[1].0[bytes.clone()].copy_from_slice(&(bias[group] >> shift).to_ne_bytes());
            to[2].0[bytes].copy_from_slice(&sum[group].to_ne_bytes());
        }
    }
}

/// Multiplies all rows of weights with the `Q` quads of `x`, whose first row of activations is `t`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn matrix<const FINE: bool, const OFFSET: bool, const BIASED: bool, const Q: usize>(
    job: &Job<'_>,
    t: usize,
    x: &[Quad],
    of: Chunks,
) {
    let (all, whole) = (chunks(job.row_len), job.row_len / CHUNK);
    let quads: [&[Quad]; Q] = std::array::from_fn(|i| &x[i * x.len() / Q..(i + 1) * x.len() / Q]);
    for first in (job.first..job.end).step_by(ROWS) {
        let count = ROWS.min(job.end - first);
        let mut ahead = Ahead::new(job, first + ROWS, ROWS, count.div_ceil(2) * all);
        let mut sums = [[[_mm512_setzero_ps(); 4]; Q]; ROWS / 2];
        for start in (0..all).step_by(STRETCH / Q) {
            let end = all.min(start + STRETCH / Q);
            for (p, sums) in sums.iter_mut().enumerate().take(count.div_ceil(2)) {
                let rows = [first + 2 * p, first + (2 * p + 1).min(count - 1)];
                let [a, b] = rows.map(|row| job.row(row));
                let (mut pair, mut now) = (Pair::ZERO, *sums);
                for q in start..end {
                    ahead.step();
                    if q < whole {
                        let at = q * of.bytes..(q + 1) * of.bytes;
                        // SAFETY: this function has the instructions that it asks for.
                        unsafe { (of.load)(&a[at.clone()], &b[at], &mut pair) };
                    } else {
                        pair = last_chunk::<FINE>(job, rows, whole, of.bytes, |a, b| {
                            // SAFETY: as above.
                            unsafe { (of.load)(a, b, &mut pair) };
                            pair
                        });
                    }
                    chunk::<FINE, OFFSET, BIASED, Q>(&pair, &quads, q, &mut now);
                }
                *sums = now;
            }
        }
        let mut y = [[0.0; ROWS]; 4];
        for i in 0..Q {
            for (p, sums) in sums.iter().enumerate() {
                let both = outputs::<FINE>(sums[i]);
                for token in 0..TOKENS {
                    (y[token][2 * p], y[token][2 * p + 1]) = (both[token], both[8 + token]);
                }
            }
            for (token, y) in y.iter().enumerate().take((job.x.count() - t).saturating_sub(i * TOKENS)) {
                job.y.write(t + i * TOKENS + token, first, &y[..count]);
            }
        }
    }
}

/// Adds the products of chunk `q` of two rows of weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn chunk<const FINE: bool, const OFFSET: bool, const BIASED: bool, const Q: usize>(
    pair: &Pair,
    quads: &[&[Quad]; Q],
    q: usize,
    sums: &mut Sums<Q>,
) {
    // No closures here: the compiler would not inline them.
    let len = self::quads::<FINE>();
    let mut x: [&[Quad]; Q] = [&[]; Q];
    for i in 0..Q {
        x[i] = &quads[i][q * len..][..len];
    }
    macro_rules! step {
        ($k:literal, $at:expr, $part:expr, $codes:expr) => {{
            const COPY: i32 = 0x55 * $k;
            let scale = _mm512_permute_ps::<COPY>(pair.scale[$part]);
            let offset = _mm512_permute_ps::<COPY>(pair.offset[$part]);
            step::<OFFSET, BIASED, Q, _>($codes, scale, offset, &x, $at, sums, $k);
        }};
    }
    let (low, high) = (&pair.low, &pair.high);
    if FINE {
        step!(0, 0, 0, [low[0]]);
        step!(1, 7, 0, [high[0]]);
        step!(2, 14, 0, [low[1]]);
        step!(3, 21, 0, [high[1]]);
        step!(0, 28, 1, [low[2]]);
        step!(1, 35, 1, [high[2]]);
        step!(2, 42, 1, [low[3]]);
        step!(3, 49, 1, [high[3]]);
    } else {
        step!(0, 0, 0, [low[0], high[0]]);
        step!(1, 11, 0, [low[1], high[1]]);
        step!(2, 22, 0, [low[2], high[2]]);
        step!(3, 33, 0, [low[3], high[3]]);
    }
}

/// Adds the products of one group at each of four places: its codes are `H` sixteens.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn step<const OFFSET: bool, const BIASED: bool, const Q: usize, const H: usize>(
    codes: [__m512i; H],
    scale: __m512,
    offset: __m512,
    x: &[&[Quad]; Q],
    at: usize,
    sums: &mut Sums<Q>,
    k: usize,
) {
    let sides = at + 4 * H;
    let mut dots = [_mm512_setzero_si512(); Q];
    if BIASED {
        for i in 0..Q {
            dots[i] = x[i][sides + 1].twice();
        }
    }
    for h in 0..H {
        let copies = [
            _mm512_shuffle_epi32::<0x00>(codes[h]),
            _mm512_shuffle_epi32::<0x55>(codes[h]),
            _mm512_shuffle_epi32::<0xAA>(codes[h]),
            _mm512_shuffle_epi32::<0xFF>(codes[h]),
        ];
        for j in 0..4 {
            for i in 0..Q {
                dots[i] = _mm512_dpbusd_epi32(dots[i], copies[j], x[i][at + 4 * h + j].twice());
            }
        }
    }
    for i in 0..Q {
        let scale = _mm512_mul_ps(scale, _mm512_castsi512_ps(x[i][sides].twice()));
        let mut sum = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots[i]), sums[i][k]);
        if OFFSET {
            sum = _mm512_fmadd_ps(offset, _mm512_castsi512_ps(x[i][sides + 2].twice()), sum);
        }
        sums[i][k] = sum;
    }
}

impl Quad {
    /// For both rows of weights.
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn twice(&self) -> __m512i {
        // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
        _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(self.0.as_ptr().cast()) })
    }
}

/// The fixed tree over the lanes of the contract: the outputs of the first row of weights at 0, of the second at 8.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn outputs<const FINE: bool>(sums: [__m512; 4]) -> [f32; 16] {
    let [a, b, c, d] = sums;
    let (even, odd) = if FINE {
        // Places: 0 2, 1 3, 4 6, 5 7.
        let (x, y) = (_mm512_add_ps(a, c), _mm512_add_ps(b, d));
        (_mm512_add_ps(x, next_place(x)), _mm512_add_ps(y, next_place(y)))
    } else {
        // Places: 0 1, 2 3, 4 5, 6 7.
        let x = _mm512_add_ps(_mm512_add_ps(a, c), _mm512_add_ps(b, d));
        (x, next_place(x))
    };
    let mut out = [0.0; 16];
    store_floats(_mm512_add_ps(_mm512_add_ps(even, odd), _mm512_setzero_ps()), &mut out);
    out
}

/// What is one place further on, for places 0 and 2.
#[inline]
#[target_feature(enable = "avx512f")]
fn next_place(x: __m512) -> __m512 {
    _mm512_shuffle_f32x4::<0b11_11_01_01>(x, x)
}
