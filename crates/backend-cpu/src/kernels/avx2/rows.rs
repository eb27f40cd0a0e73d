//! Few rows of activations: one row of weights at a time.

use super::*;
use crate::kernels::activations::{Line, Row, chunks};
use crate::kernels::format::Chunk;
use crate::kernels::plain;

/// Bytes ahead of the one being read that are asked for.
const AHEAD: usize = 2048;

/// Computes all outputs of a job.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
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
#[target_feature(enable = "avx2,fma,f16c")]
fn block<F: Format, const T: usize>(job: &Job<'_>, n: usize, t: usize) -> usize {
    let row = job.row(n);
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    let mut sums = [_mm256_setzero_ps(); T];
    let mut chunk = Chunk::ZERO;
    for q in 0..chunks(job.row_len) {
        for at in (0..F::CHUNK_BYTES).step_by(64) {
            // A prefetch may name any address.
            let ahead = row.as_ptr().wrapping_add(q * F::CHUNK_BYTES + AHEAD + at);
            _mm_prefetch::<_MM_HINT_T0>(ahead.cast());
        }
        plain::expand::<F>(row, q, &mut chunk);
        for i in 0..T {
            sums[i] = step::<F>(&chunk, &x[i], q, sums[i]);
        }
    }
    for i in 0..T {
        let mut l = [0.0; 8];
        store_floats(sums[i], &mut l);
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
#[target_feature(enable = "avx2,fma,f16c")]
fn step<F: Format>(w: &Chunk, x: &Row<'_>, q: usize, mut sum: __m256) -> __m256 {
    let ones = _mm256_set1_epi16(1);
    if F::FINE {
        let side = &x.fine[q];
        for half in 0..2 {
            let part = |i: usize, h: usize| {
                let i = 2 * half + i;
                _mm256_madd_epi16(pairs::<F>(codes::<F>(w, i, h), activations(x.line(q, i), h)), ones)
            };
            let dots = transposing_sum([part(0, 0), part(0, 1), part(1, 0), part(1, 1)]);
            let (scale, offset) = (eight(&w.scale, half), eight(&w.offset, half));
            let side = (&side.scale[half], &side.bias[half], &side.sum[half]);
            sum = scaled::<F>(dots, scale, offset, side, sum);
        }
        return sum;
    }
    let part = |i: usize| {
        let line = x.line(q, i);
        let low = pairs::<F>(codes::<F>(w, i, 0), activations(line, 0));
        let high = pairs::<F>(codes::<F>(w, i, 1), activations(line, 1));
        if F::BIAS != 128 && pairs_in_16_bits(F::TOP) >= 2 {
            _mm256_madd_epi16(_mm256_add_epi16(low, high), ones)
        } else {
            _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones))
        }
    };
    let dots = transposing_sum([part(0), part(1), part(2), part(3)]);
    let side = &x.coarse[q];
    let side = (&side.scale, &side.bias, &side.sum);
    scaled::<F>(dots, eight(&w.scale, 0), eight(&w.offset, 0), side, sum)
}

/// Takes the bias back, scales, and adds.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn scaled<F: Format>(
    dots: __m256i,
    scale: __m256,
    offset: __m256,
    side: (&[f32; 8], &[i32; 8], &[f32; 8]),
    sum: __m256,
) -> __m256 {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    let bias = unsafe { _mm256_loadu_si256(side.1.as_ptr().cast()) };
    let dots = match F::BIAS {
        1 => _mm256_add_epi32(dots, _mm256_srai_epi32::<7>(bias)),
        8 => _mm256_add_epi32(dots, _mm256_srai_epi32::<4>(bias)),
        16 => _mm256_add_epi32(dots, _mm256_srai_epi32::<3>(bias)),
        32 => _mm256_add_epi32(dots, _mm256_srai_epi32::<2>(bias)),
        _ => dots,
    };
    let scale = _mm256_mul_ps(scale, load_floats(side.0));
    let sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), sum);
    if F::OFFSET { _mm256_fmadd_ps(offset, load_floats(side.2), sum) } else { sum }
}

/// Half `half` of line `i` of a chunk, signed where the bias is 128.
#[inline]
#[target_feature(enable = "avx2")]
fn codes<F: Format>(w: &Chunk, i: usize, half: usize) -> __m256i {
    let codes = load_bytes(w.codes[64 * i + 32 * half..].first_chunk().expect("a chunk has four lines"));
    if F::BIAS == 128 { _mm256_xor_si256(codes, _mm256_set1_epi8(-128)) } else { codes }
}

#[inline]
#[target_feature(enable = "avx2")]
fn activations(line: &Line, half: usize) -> __m256i {
    let codes: &[i8; 32] = line.0[32 * half..].first_chunk().expect("a line has two halves");
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn eight(x: &[f32; 16], half: usize) -> __m256 {
    load_floats(x[8 * half..].first_chunk().expect("two halves"))
}

/// Adds the four integers in each 128-bit lane of four vectors: lane `l` of the result holds the sums of lane `l` of each.
#[inline]
#[target_feature(enable = "avx2")]
fn transposing_sum(z: [__m256i; 4]) -> __m256i {
    let fold = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low, high) = (fold(z[0], z[1]), fold(z[2], z[3]));
    _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high))
}
