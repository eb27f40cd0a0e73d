//! Some rows of activations: four rows of weights at a time, whose codes lie in registers as their sums do.
//!
//! What a file of an encoding loads holds sixteen codes of two groups of two rows of weights in a vector. Transposed with
//! three others, each lane of 32 bits belongs to one group of one row throughout, so that products add up in their lanes:
//! nothing is added across, and what it takes to unpack and transpose is shared by all rows of activations. These are laid
//! out to match once for all rows of weights.

use super::one::{put, sides};
use super::rows::last_chunk;
use super::tile::{in_lanes, shift};
use super::{Pair, high4, low4, store_floats};
use crate::kernels::activations::{CHUNK, Row, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::{CHUNK_QUADS, Job, Quad};
use std::arch::x86_64::*;

/// Pairs of rows of weights whose codes lie in registers.
const PAIRS: usize = 2;

/// Fours of rows of weights that share one reading of a stretch of activations.
const FOURS: usize = 4;

/// Rows of weights in a block.
const ROWS: usize = FOURS * 2 * PAIRS;

/// Rows of activations that share one unpacking.
const TOKENS: usize = 16;

/// Chunks of rows of activations that stay in the L1 cache while the weights of a block pass.
const STRETCH: usize = 64;

/// The sums of a pair for each pair of four rows of weights: eight of its first row, eight of its second.
type Sums = [__m512; PAIRS];

/// Vectors of codes of a chunk of a pair of rows.
const VECTORS: usize = 8;

/// Groups of a lane in a chunk.
const fn parts<F: Format>() -> usize {
    if F::FINE { 2 } else { 1 }
}

/// [`Quad`]s of a chunk of a row: of codes, then for each part scales, biases and sums.
const fn quads<F: Format>() -> usize {
    VECTORS + 3 * parts::<F>()
}

/// Computes all outputs of a job, whose activations are laid out in `room`. `load` gives pairs as [`turned`] does.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, room: &mut [Quad], load: impl Fn(&[u8], &[u8]) -> Pair) {
    const { assert!(TOKENS * quads::<F>() <= CHUNK_QUADS, "room for rows of activations") };
    let all = job.x.count();
    let passes = all.div_ceil(TOKENS);
    let mut t = 0;
    for pass in 0..passes {
        // Passes of about the same size.
        let count = (pass + 1) * all / passes - t;
        let x = &mut room[..chunks(job.row_len) * count * quads::<F>()];
        for i in 0..count {
            let row = job.x.row(t + i);
            for (q, x) in x.chunks_exact_mut(count * quads::<F>()).enumerate() {
                lay_out::<F>(&row, q, &mut x[i * quads::<F>()..][..quads::<F>()]);
            }
        }
        matrix::<F>(job, (t, count), x, &load);
        t += count;
    }
}

/// Lays out chunk `q` of a row of activations.
#[inline]
#[target_feature(enable = "avx2")]
fn lay_out<F: Format>(row: &Row<'_>, q: usize, to: &mut [Quad]) {
    let half = |line: usize, half: usize| {
        let codes: &[i8; 32] = row.line(q, line).0[32 * half..].first_chunk().expect("a line has two halves");
        // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
        unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
    };
    for i in 0..2 {
        let z = if F::FINE {
            [half(2 * i, 0), half(2 * i, 1), half(2 * i + 1, 0), half(2 * i + 1, 1)]
        } else {
            [half(0, i), half(1, i), half(2, i), half(3, i)]
        };
        let (a, b) = (_mm256_unpacklo_epi32(z[0], z[1]), _mm256_unpackhi_epi32(z[0], z[1]));
        let (c, d) = (_mm256_unpacklo_epi32(z[2], z[3]), _mm256_unpackhi_epi32(z[2], z[3]));
        put(&mut to[4 * i], _mm256_unpacklo_epi64(a, c));
        put(&mut to[4 * i + 1], _mm256_unpackhi_epi64(a, c));
        put(&mut to[4 * i + 2], _mm256_unpacklo_epi64(b, d));
        put(&mut to[4 * i + 3], _mm256_unpackhi_epi64(b, d));
    }
    for part in 0..parts::<F>() {
        let (scale, bias, sum) = sides(row, F::FINE, q, part);
        let side = &mut to[VECTORS + 3 * part..];
        // SAFETY: the references cover the 32 bytes read of each, and `loadu` asks for no alignment.
        unsafe {
            put(&mut side[0], _mm256_loadu_si256(scale.as_ptr().cast()));
            let bias = _mm256_loadu_si256(bias.as_ptr().cast());
            put(&mut side[1], _mm256_srav_epi32(bias, _mm256_set1_epi32(shift::<F>())));
            put(&mut side[2], _mm256_loadu_si256(sum.as_ptr().cast()));
        }
    }
}

/// Multiplies all rows of weights with the `count` rows of activations from `t` on, which `x` holds.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn matrix<F: Format>(
    job: &Job<'_>,
    (t, count): (usize, usize),
    x: &[Quad],
    load: &impl Fn(&[u8], &[u8]) -> Pair,
) {
    let (all, whole) = (chunks(job.row_len), job.row_len / CHUNK);
    let (stretch, len) = ((STRETCH / count).max(1), count * quads::<F>());
    let mut sums = [[[_mm512_setzero_ps(); PAIRS]; TOKENS]; FOURS];
    for first in (job.first..job.end).step_by(ROWS) {
        let rows = ROWS.min(job.end - first);
        for sums in &mut sums {
            sums[..count].fill([_mm512_setzero_ps(); PAIRS]);
        }
        for start in (0..all).step_by(stretch) {
            let end = all.min(start + stretch);
            for (four, sums) in sums.iter_mut().enumerate() {
                let (mut at, mut bytes) = ([[0; 2]; PAIRS], [[&[][..]; 2]; PAIRS]);
                for p in 0..PAIRS {
                    for i in 0..2 {
                        at[p][i] = first + row_of(PAIRS * four + p, i).min(rows - 1);
                        bytes[p][i] = job.row(at[p][i]);
                    }
                }
                for q in start..end.min(whole) {
                    let of = q * F::CHUNK_BYTES..(q + 1) * F::CHUNK_BYTES;
                    let mut pairs = [Pair::ZERO; PAIRS];
                    for p in 0..PAIRS {
                        for row in bytes[p] {
                            // The row below comes into the L2 cache meanwhile.
                            let below = row.as_ptr().wrapping_add(ROWS * job.row_bytes + of.start);
                            for at in (0..F::CHUNK_BYTES).step_by(64) {
                                // A prefetch may name any address.
                                _mm_prefetch::<_MM_HINT_T1>(below.wrapping_add(at).cast());
                            }
                        }
                        pairs[p] = load(&bytes[p][0][of.clone()], &bytes[p][1][of.clone()]);
                    }
                    multiply::<F>(&pairs, &x[q * len..][..len], &mut sums[..count]);
                }
                if end > whole {
                    let mut pairs = [Pair::ZERO; PAIRS];
                    for p in 0..PAIRS {
                        pairs[p] = if F::FINE {
                            last_chunk::<true>(job, at[p], whole, F::CHUNK_BYTES, load)
                        } else {
                            last_chunk::<false>(job, at[p], whole, F::CHUNK_BYTES, load)
                        };
                    }
                    multiply::<F>(&pairs, &x[whole * len..][..len], &mut sums[..count]);
                }
            }
        }
        for i in 0..count {
            let mut y = [0.0; ROWS];
            for (eight, y) in y.as_chunks_mut::<8>().0.iter_mut().enumerate() {
                let ([a, b], [c, d]) = (sums[2 * eight][i], sums[2 * eight + 1][i]);
                *y = outputs::<F>([a, b, c, d]);
            }
            job.y.write(t + i, first, &y[..rows]);
        }
    }
}

/// Row `i` of pair `p` of a block: [`outputs`] of four pairs are eight rows in order.
const fn row_of(p: usize, i: usize) -> usize {
    p / 4 * 8 + p % 4 + 4 * i
}

/// A pair as it is multiplied here: `low` and `high` are the eight vectors of codes in order, transposed.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn turned<F: Format>(pair: Pair) -> Pair {
    let Pair { low, high, .. } = pair;
    let (first, last) = if F::FINE {
        ([low[0], high[0], low[1], high[1]], [low[2], high[2], low[3], high[3]])
    } else {
        (low, high)
    };
    Pair { low: in_lanes(first), high: in_lanes(last), ..pair }
}

/// The same of nibbles whose [layout](super::tile::HALVES) keeps both halves of a group together: these are transposed once.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn turned_halves(
    raw: impl Fn(usize) -> __m512i,
    codes: impl Fn(__m512i) -> __m512i,
    [scale, offset]: [__m512; 2],
) -> Pair {
    let packed = in_lanes([raw(0), raw(1), raw(2), raw(3)]);
    let (mut low, mut high) = (low4(packed), high4(packed));
    for i in 0..4 {
        (low[i], high[i]) = (codes(low[i]), codes(high[i]));
    }
    Pair { low, high, scale: [scale; 2], offset: [offset; 2] }
}

/// Adds the products of a chunk of four rows of weights with each row of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn multiply<F: Format>(pairs: &[Pair; PAIRS], x: &[Quad], sums: &mut [Sums]) {
    let (twos, last) = sums.as_chunks_mut::<2>();
    let (x_of_twos, x_of_last) = x.split_at(twos.len() * 2 * quads::<F>());
    for (x, sums) in x_of_twos.chunks_exact(2 * quads::<F>()).zip(twos) {
        add::<F, 2>(pairs, x, sums);
    }
    if let [sums] = last {
        add::<F, 1>(pairs, x_of_last, std::array::from_mut(sums));
    }
}

/// The same with `N` rows of activations, whose sums do not wait for each other.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn add<F: Format, const N: usize>(pairs: &[Pair; PAIRS], x: &[Quad], sums: &mut [Sums; N]) {
    let at = |n: usize, i: usize| twice(&x[n * quads::<F>() + i]);
    let floats = |n: usize, i: usize| _mm512_castsi512_ps(at(n, i));
    for part in 0..parts::<F>() {
        let side = VECTORS + 3 * part;
        let mut dots = [[_mm512_setzero_si512(); PAIRS]; N];
        if F::BIAS > 0 {
            for n in 0..N {
                dots[n] = [at(n, side + 1); PAIRS];
            }
        }
        for v in 0..VECTORS / parts::<F>() {
            let v = part * VECTORS / 2 + v;
            for n in 0..N {
                let x = at(n, v);
                for p in 0..PAIRS {
                    let codes = if v < 4 { pairs[p].low[v] } else { pairs[p].high[v - 4] };
                    dots[n][p] = _mm512_dpbusd_epi32(dots[n][p], codes, x);
                }
            }
        }
        for n in 0..N {
            let scale = floats(n, side);
            for p in 0..PAIRS {
                let scale = _mm512_mul_ps(pairs[p].scale[part], scale);
                sums[n][p] = _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(dots[n][p]), sums[n][p]);
            }
            if F::OFFSET {
                let sum = floats(n, side + 2);
                for p in 0..PAIRS {
                    sums[n][p] = _mm512_fmadd_ps(pairs[p].offset[part], sum, sums[n][p]);
                }
            }
        }
    }
}

/// For both rows of weights of a pair.
#[inline]
#[target_feature(enable = "avx512f")]
fn twice(x: &Quad) -> __m512i {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(x.0.as_ptr().cast()) })
}

/// The fixed tree over the lanes of the contract of four pairs of rows: the first rows of all pairs, then their second rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn outputs<F: Format>(sums: [__m512; 4]) -> [f32; 8] {
    // Places 0 and 2, 1 and 3 of each lane of 128 bits, of two pairs.
    let alternate = |a: __m512, b: __m512| {
        let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
        let (low, high) = (_mm512_unpacklo_pd(a, b), _mm512_unpackhi_pd(a, b));
        _mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))
    };
    // Neighbours, of all pairs.
    let neighbours = |x: __m512, y: __m512| {
        _mm512_add_ps(_mm512_shuffle_ps::<0b10_00_10_00>(x, y), _mm512_shuffle_ps::<0b11_01_11_01>(x, y))
    };
    let halves = |x: __m512| _mm512_add_ps(x, _mm512_shuffle_f32x4::<0b11_11_01_01>(x, x));
    let (x, y) = (alternate(sums[0], sums[1]), alternate(sums[2], sums[3]));
    let sum = if F::FINE { neighbours(halves(x), halves(y)) } else { halves(neighbours(x, y)) };
    let mut out = [0.0; 16];
    store_floats(_mm512_add_ps(sum, _mm512_setzero_ps()), &mut out);
    [out[0], out[1], out[2], out[3], out[8], out[9], out[10], out[11]]
}
