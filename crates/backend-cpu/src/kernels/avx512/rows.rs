//! Few rows of activations: two rows of weights at a time, straight from their blocks.

use super::Pair;
use crate::kernels::activations::{CHUNK, COARSE_ORDER, Coarse, Fine, Line, Row, chunks};
use crate::kernels::format::Format;
use crate::kernels::matmul::Job;
use nibble_quant::GROUP;
use std::arch::x86_64::*;

/// Bytes ahead of the one being read that are asked for.
const AHEAD: usize = 1024;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Computes all outputs of a job.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn product<F: Format>(job: &Job<'_>, load: impl Fn(&[u8], &[u8]) -> Pair) {
    let mut t = 0;
    while t < job.x.count() {
        t += match job.x.count() - t {
            3.. => streams::<F, 3, 1>(job, t, &load),
            2 => streams::<F, 2, 1>(job, t, &load),
            _ => streams::<F, 1, 2>(job, t, &load),
        };
    }
}

/// Multiplies all rows of weights with `T` rows of activations from `t` on; returns `T`.
///
/// `P` pairs of rows at a time, far apart: hardware follows several streams better than rows side by side.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn streams<F: Format, const T: usize, const P: usize>(
    job: &Job<'_>,
    t: usize,
    load: &impl Fn(&[u8], &[u8]) -> Pair,
) -> usize {
    let count = job.end - job.first;
    let stream = count.div_ceil(2 * P);
    let chunks = chunks(job.row_len);
    let x: [X<'_>; T] = std::array::from_fn(|i| X::new::<F>(&job.x.row(t + i), chunks));
    for n in 0..stream {
        let row = |i: usize| job.first + (i * stream + n).min(count - 1);
        let pairs: [[usize; 2]; P] = std::array::from_fn(|p| [row(2 * p), row(2 * p + 1)]);
        let sums = block::<F, T, P>(job, pairs, &x, load);
        for p in 0..P {
            for i in 0..T {
                let y = if F::FINE { fine_tree(sums[p][i]) } else { coarse_tree(sums[p][i]) };
                job.y.write(t + i, pairs[p][0], &y[..1]);
                job.y.write(t + i, pairs[p][1], &y[1..]);
            }
        }
    }
    T
}

/// A row of activations, cut so that one comparison shows a chunk to be in it.
struct X<'a> {
    lines: [&'a [Line]; 4],
    coarse: &'a [Coarse],
    fine: &'a [Fine],
}

impl<'a> X<'a> {
    #[inline(always)]
    fn new<F: Format>(row: &Row<'a>, chunks: usize) -> Self {
        Self {
            lines: std::array::from_fn(|i| &row.lines[i * chunks..(i + 1) * chunks]),
            coarse: if F::FINE { &[] } else { &row.coarse[..chunks] },
            fine: if F::FINE { &row.fine[..chunks] } else { &[] },
        }
    }
}

/// Multiplies `P` pairs of rows of weights with `T` rows of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn block<F: Format, const T: usize, const P: usize>(
    job: &Job<'_>,
    pairs: [[usize; 2]; P],
    x: &[X<'_>; T],
    load: &impl Fn(&[u8], &[u8]) -> Pair,
) -> [[__m512; T]; P] {
    let rows: [[&[u8]; 2]; P] = std::array::from_fn(|p| [job.row(pairs[p][0]), job.row(pairs[p][1])]);
    let mut sums = [[_mm512_setzero_ps(); T]; P];
    let whole = job.row_len / CHUNK;
    for q in 0..whole {
        let at = q * F::CHUNK_BYTES..(q + 1) * F::CHUNK_BYTES;
        for p in 0..P {
            let (a, b) = (&rows[p][0][at.clone()], &rows[p][1][at.clone()]);
            for at in (0..F::CHUNK_BYTES).step_by(64) {
                // A prefetch may name any address.
                _mm_prefetch::<_MM_HINT_T0>(a.as_ptr().wrapping_add(AHEAD + at).cast());
                _mm_prefetch::<_MM_HINT_T0>(b.as_ptr().wrapping_add(AHEAD + at).cast());
            }
            let pair = load(a, b);
            for i in 0..T {
                sums[p][i] = step::<F>(&pair, &x[i], q, sums[p][i]);
            }
        }
    }
    if !job.row_len.is_multiple_of(CHUNK) {
        for p in 0..P {
            let pair = if F::FINE {
                last_chunk::<true>(job, pairs[p], whole, F::CHUNK_BYTES, load)
            } else {
                last_chunk::<false>(job, pairs[p], whole, F::CHUNK_BYTES, load)
            };
            for i in 0..T {
                sums[p][i] = step::<F>(&pair, &x[i], whole, sums[p][i]);
            }
        }
    }
    sums
}

/// Which places of [`COARSE_ORDER`] hold one of the first so many groups, for two rows.
static FIRST_GROUPS: [u16; 9] = {
    let mut masks = [0; 9];
    let mut groups = 0;
    while groups < 9 {
        let mut place = 0;
        while place < 8 {
            if COARSE_ORDER[place] < groups {
                masks[groups] |= 0x101 << place;
            }
            place += 1;
        }
        groups += 1;
    }
    masks
};

/// The chunk `whole` of two rows, which ends inside it: what lies beyond has scales and offsets of 0.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn last_chunk<const FINE: bool>(
    job: &Job<'_>,
    pair: [usize; 2],
    whole: usize,
    chunk_bytes: usize,
    mut load: impl FnMut(&[u8], &[u8]) -> Pair,
) -> Pair {
    let start = pair.map(|row| row * job.row_bytes + whole * chunk_bytes);
    let inside = start.iter().all(|start| start + chunk_bytes <= job.bytes.len());
    if !FINE && inside {
        // Reading on into the next row is cheaper than a copy; its scales, whatever they are, do not count.
        let [a, b] = start.map(|start| &job.bytes[start..start + chunk_bytes]);
        let mask = FIRST_GROUPS[job.row_len % CHUNK / GROUP];
        let mut pair = load(a, b);
        for i in 0..2 {
            pair.scale[i] = _mm512_maskz_mov_ps(mask, pair.scale[i]);
            pair.offset[i] = _mm512_maskz_mov_ps(mask, pair.offset[i]);
        }
        return pair;
    }
    let [a, b] = pair.map(|row| {
        let rest = &job.row(row)[whole * chunk_bytes..];
        let mut padded = [0; LONGEST];
        padded[..rest.len()].copy_from_slice(rest);
        padded
    });
    load(&a[..chunk_bytes], &b[..chunk_bytes])
}

/// Adds the products of one chunk with one row of activations.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn step<F: Format>(pair: &Pair, x: &X<'_>, q: usize, mut sum: __m512) -> __m512 {
    let zero = _mm512_setzero_si512();
    if F::FINE {
        let Fine { scale, bias, sum: sums } = &x.fine[q];
        for half in 0..2 {
            let dots = transposing_sum::<F, 4>([
                _mm512_dpbusd_epi32(zero, pair.low[2 * half], twice(&x.lines[2 * half][q], 0)),
                _mm512_dpbusd_epi32(zero, pair.high[2 * half], twice(&x.lines[2 * half][q], 1)),
                _mm512_dpbusd_epi32(zero, pair.low[2 * half + 1], twice(&x.lines[2 * half + 1][q], 0)),
                _mm512_dpbusd_epi32(zero, pair.high[2 * half + 1], twice(&x.lines[2 * half + 1][q], 1)),
            ]);
            let side = (&scale[half], &bias[half], &sums[half]);
            sum = scaled::<F>(dots, pair.scale[half], pair.offset[half], side, sum);
        }
        return sum;
    }
    let Coarse { scale, bias, sum: sums } = &x.coarse[q];
    let mut dots = [zero; 4];
    for i in 0..4 {
        let low = _mm512_dpbusd_epi32(zero, pair.low[i], twice(&x.lines[i][q], 0));
        dots[i] = _mm512_dpbusd_epi32(low, pair.high[i], twice(&x.lines[i][q], 1));
    }
    let dots = transposing_sum::<F, 8>(dots);
    scaled::<F>(dots, pair.scale[0], pair.offset[0], (scale, bias, sums), sum)
}

/// Takes the bias back, scales, and adds.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scaled<F: Format>(
    dots: __m512i,
    scale: __m512,
    offset: __m512,
    side: (&[f32; 8], &[i32; 8], &[f32; 8]),
    sum: __m512,
) -> __m512 {
    let dots = match F::BIAS {
        0 => dots,
        1 => _mm512_add_epi32(dots, _mm512_srai_epi32::<7>(integers(side.1))),
        2 => _mm512_add_epi32(dots, _mm512_srai_epi32::<6>(integers(side.1))),
        4 => _mm512_add_epi32(dots, _mm512_srai_epi32::<5>(integers(side.1))),
        8 => _mm512_add_epi32(dots, _mm512_srai_epi32::<4>(integers(side.1))),
        16 => _mm512_add_epi32(dots, _mm512_srai_epi32::<3>(integers(side.1))),
        32 => _mm512_add_epi32(dots, _mm512_srai_epi32::<2>(integers(side.1))),
        _ => _mm512_add_epi32(dots, integers(side.1)),
    };
    let sum = _mm512_fmadd_ps(_mm512_mul_ps(scale, floats(side.0)), _mm512_cvtepi32_ps(dots), sum);
    if F::OFFSET { _mm512_fmadd_ps(offset, floats(side.2), sum) } else { sum }
}

/// Half `i` of 64 codes, twice: for the two rows of weights.
#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn twice(line: &Line, i: usize) -> __m512i {
    let codes: &[i8; 32] = line.0[32 * i..].first_chunk().expect("a line has two halves");
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn floats(x: &[f32; 8]) -> __m512 {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    _mm512_broadcast_f32x8(unsafe { _mm256_loadu_ps(x.as_ptr()) })
}

#[inline]
#[target_feature(enable = "avx512f,avx512dq,avx512vl")]
fn integers(x: &[i32; 8]) -> __m512i {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    _mm512_broadcast_i64x4(unsafe { _mm256_loadu_si256(x.as_ptr().cast()) })
}

/// Adds the four integers in each 128-bit lane of four vectors: lane `l` of the result holds the sums of lane `l` of each.
///
/// `PRODUCTS` of codes are in each integer: where they are small, sums fit into 16 bits, and pairs are added by one
/// instruction.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn transposing_sum<F: Format, const PRODUCTS: i32>(z: [__m512i; 4]) -> __m512i {
    let narrow = |a, b| _mm512_madd_epi16(_mm512_packs_epi32(a, b), _mm512_set1_epi16(1));
    if F::TOP * 127 * PRODUCTS * 2 <= 0x7FFF {
        return narrow(narrow(z[0], z[1]), narrow(z[2], z[3]));
    }
    let fold = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (low, high) = (fold(z[0], z[1]), fold(z[2], z[3]));
    _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high))
}

/// The fixed tree over eight lanes in `COARSE_ORDER`, for two rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
pub fn coarse_tree(sums: __m512) -> [f32; 2] {
    // In order: 0 2 4 6 1 3 5 7. Added are neighbours two apart, then one, then four.
    let fours = _mm512_add_ps(sums, _mm512_permute_ps::<0b01_00_11_10>(sums));
    let sixes = _mm512_add_ps(fours, _mm512_permute_ps::<0b10_11_00_01>(fours));
    ends(_mm512_add_ps(sixes, _mm512_shuffle_f32x4::<0b10_11_00_01>(sixes, sixes)))
}

/// The same for `FINE_ORDER`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn fine_tree(sums: __m512) -> [f32; 2] {
    // In order: 0 1 4 5 2 3 6 7. Added are neighbours two apart, then four, then one.
    let fours = _mm512_add_ps(sums, _mm512_permute_ps::<0b01_00_11_10>(sums));
    let sixes = _mm512_add_ps(fours, _mm512_shuffle_f32x4::<0b10_11_00_01>(fours, fours));
    ends(_mm512_add_ps(sixes, _mm512_permute_ps::<0b10_11_00_01>(sixes)))
}

/// Lanes 0 and 8, each plus 0.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn ends(sums: __m512) -> [f32; 2] {
    let sums = _mm512_add_ps(sums, _mm512_setzero_ps());
    [_mm512_cvtss_f32(sums), _mm_cvtss_f32(_mm512_extractf32x4_ps::<2>(sums))]
}
