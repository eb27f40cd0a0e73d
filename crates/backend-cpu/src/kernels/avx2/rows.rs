//! Few rows of activations: one row of weights at a time.

use super::*;
use crate::kernels::activations::{CHUNK, Line, Row};
use crate::kernels::matmul::Job;

/// Bytes ahead of the one being read that are asked for.
const AHEAD: usize = 2048;

/// The longest chunk of a format that may end inside one.
const LONGEST: usize = 512;

/// Computes all outputs of a job.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn product<F: Format>(job: &Job<'_>, load: impl Fn(&[u8]) -> Wide) {
    for n in job.first..job.end {
        let mut t = 0;
        while t < job.x.count() {
            t += match job.x.count() - t {
                4.. => block::<F, 4>(job, n, t, &load),
                2.. => block::<F, 2>(job, n, t, &load),
                _ => block::<F, 1>(job, n, t, &load),
            };
        }
    }
}

/// Multiplies a row of weights with `T` rows of activations from `t` on; returns `T`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn block<F: Format, const T: usize>(
    job: &Job<'_>,
    n: usize,
    t: usize,
    load: &impl Fn(&[u8]) -> Wide,
) -> usize {
    let row = job.row(n);
    let x: [Row<'_>; T] = std::array::from_fn(|i| job.x.row(t + i));
    let mut sums = [_mm256_setzero_ps(); T];
    let whole = job.row_len / CHUNK;
    for q in 0..whole {
        let bytes = &row[q * F::CHUNK_BYTES..(q + 1) * F::CHUNK_BYTES];
        for at in (0..F::CHUNK_BYTES).step_by(64) {
            // A prefetch may name any address.
            _mm_prefetch::<_MM_HINT_T0>(bytes.as_ptr().wrapping_add(AHEAD + at).cast());
        }
        let wide = load(bytes);
        for i in 0..T {
            sums[i] = step::<F>(&wide, &x[i], q, sums[i]);
        }
    }
    if !job.row_len.is_multiple_of(CHUNK) {
        let rest = &row[whole * F::CHUNK_BYTES..];
        let mut padded = [0; LONGEST];
        padded[..rest.len()].copy_from_slice(rest);
        let wide = load(&padded[..F::CHUNK_BYTES]);
        for i in 0..T {
            sums[i] = step::<F>(&wide, &x[i], whole, sums[i]);
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
fn step<F: Format>(w: &Wide, x: &Row<'_>, q: usize, mut sum: __m256) -> __m256 {
    let ones = _mm256_set1_epi16(1);
    if F::FINE {
        let side = &x.fine[q];
        for half in 0..2 {
            let part = |i: usize, h: usize| {
                let i = 2 * half + i;
                let codes = if h == 0 { w.low[i] } else { w.high[i] };
                _mm256_madd_epi16(pairs::<F>(codes, activations(x.line(q, i), h)), ones)
            };
            let dots = transposing_sum([part(0, 0), part(0, 1), part(1, 0), part(1, 1)]);
            let side = (&side.scale[half], &side.bias[half], &side.sum[half]);
            sum = scaled::<F>(dots, w.scale[half], w.offset[half], side, sum);
        }
        return sum;
    }
    let part = |i: usize| {
        let line = x.line(q, i);
        let low = pairs::<F>(w.low[i], activations(line, 0));
        let high = pairs::<F>(w.high[i], activations(line, 1));
        if F::BIAS != 128 && pairs_in_16_bits(F::TOP) >= 2 {
            _mm256_madd_epi16(_mm256_add_epi16(low, high), ones)
        } else {
            _mm256_add_epi32(_mm256_madd_epi16(low, ones), _mm256_madd_epi16(high, ones))
        }
    };
    let dots = transposing_sum([part(0), part(1), part(2), part(3)]);
    let side = &x.coarse[q];
    let side = (&side.scale, &side.bias, &side.sum);
    scaled::<F>(dots, w.scale[0], w.offset[0], side, sum)
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
        4 => _mm256_add_epi32(dots, _mm256_srai_epi32::<5>(bias)),
        8 => _mm256_add_epi32(dots, _mm256_srai_epi32::<4>(bias)),
        16 => _mm256_add_epi32(dots, _mm256_srai_epi32::<3>(bias)),
        32 => _mm256_add_epi32(dots, _mm256_srai_epi32::<2>(bias)),
        _ => dots,
    };
    let scale = _mm256_mul_ps(scale, load_floats(side.0));
    let sum = _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(dots), sum);
    if F::OFFSET { _mm256_fmadd_ps(offset, load_floats(side.2), sum) } else { sum }
}

#[inline]
#[target_feature(enable = "avx2")]
fn activations(line: &Line, half: usize) -> __m256i {
    let codes: &[i8; 32] = line.0[32 * half..].first_chunk().expect("a line has two halves");
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(codes.as_ptr().cast()) }
}

/// Adds the four integers in each 128-bit lane of four vectors: lane `l` of the result holds the sums of lane `l` of each.
#[inline]
#[target_feature(enable = "avx2")]
fn transposing_sum(z: [__m256i; 4]) -> __m256i {
    let fold = |a, b| _mm256_add_epi32(_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
    let (low, high) = (fold(z[0], z[1]), fold(z[2], z[3]));
    _mm256_add_epi32(_mm256_unpacklo_epi64(low, high), _mm256_unpackhi_epi64(low, high))
}
