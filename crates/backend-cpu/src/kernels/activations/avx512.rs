//! Rounding for AVX-512: a chunk at a time, with the same result as the plain code.

use super::{CHUNK, Coarse, FINE_ORDER, Fine, RowMut, Side};
use std::arch::x86_64::*;

/// Where a vector of sums of halves of groups has what each place of [`Fine`] holds, of the first and the last eight.
///
/// The vector holds in its lane of 128 bits `2 * half + group % 2` the sums of `half` of groups `0, 2, 4, 6` or `1, 3, 5, 7`.
static FINE_SUMS: Indices = fine(true);
/// The same for a vector of what belongs to groups, in [`super::COARSE_ORDER`].
static FINE_GROUPS: Indices = fine(false);

#[repr(C, align(64))]
struct Indices([i32; 16]);

const fn fine(halves: bool) -> Indices {
    let mut table = [0; 16];
    let mut i = 0;
    while i < 16 {
        let of_half = FINE_ORDER[i % 8];
        let (group, half) = (i / 8 * 4 + of_half / 2, of_half % 2);
        let lane = group % 2 + if halves { 2 * half } else { 0 };
        table[i] = (4 * lane + group / 2) as i32;
        i += 1;
    }
    Indices(table)
}

impl Indices {
    #[inline]
    #[target_feature(enable = "avx512f")]
    fn get(&self) -> __m512i {
        // SAFETY: the reference covers the 64 bytes read.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// As `super::quantize_chunk`.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,fma")]
pub fn quantize_chunk(x: &[f32; CHUNK], q: usize, row: &mut RowMut<'_>) {
    let chunks = row.coarse.len();
    let x = |group: usize, half: usize| {
        let x: &[f32; 16] = x[32 * group + 16 * half..].first_chunk().expect("a chunk has sixteen halves");
        // SAFETY: the reference covers the 64 bytes read, and `loadu` asks for no alignment.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    };
    // As integers, magnitudes order like numbers, with infinity and NaN on top.
    let most = |group: usize| {
        let magnitude = _mm512_set1_epi32(0x7FFF_FFFF);
        let bits = |half| _mm512_and_si512(_mm512_castps_si512(x(group, half)), magnitude);
        _mm512_max_epu32(bits(0), bits(1))
    };
    let (scale, inverse) =
        scales(maxima([most(0), most(2), most(4), most(6), most(1), most(3), most(5), most(7)]));
    let used = _mm256_cmp_ps_mask::<_CMP_NEQ_OQ>(inverse, _mm256_setzero_ps());
    let inverse = _mm512_castps256_ps512(inverse);
    let mut sums = [_mm512_setzero_si512(); 4];
    for i in 0..4 {
        let mut parts = [_mm_setzero_si128(); 4];
        for odd in 0..2 {
            // The place of group `2 * i + odd` in COARSE_ORDER.
            let place = 4 * odd + i;
            let by = _mm512_permutexvar_ps(_mm512_set1_epi32(place as i32), inverse);
            let mask = if used >> place & 1 == 1 { 0xFFFF } else { 0 };
            for half in 0..2 {
                let codes = _mm512_maskz_cvtps_epi32(mask, _mm512_mul_ps(x(2 * i + odd, half), by));
                parts[2 * half + odd] = _mm512_cvtepi32_epi8(codes);
            }
        }
        let low = _mm256_set_m128i(parts[1], parts[0]);
        let line = _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), _mm256_set_m128i(parts[3], parts[2]));
        let to = &mut row.lines[i * chunks + q].0;
        // SAFETY: the reference covers the 64 bytes written, and `storeu` asks for no alignment.
        unsafe { _mm512_storeu_si512(to.as_mut_ptr().cast(), line) }
        sums[i] = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), line);
    }
    let halves = transposing_sum(sums);
    let whole = _mm256_add_epi32(_mm512_castsi512_si256(halves), _mm512_extracti64x4_epi64::<1>(halves));

    let coarse = &mut row.coarse[q];
    let (bias, sum) =
        (_mm256_mullo_epi32(whole, _mm256_set1_epi32(-128)), _mm256_mul_ps(scale, _mm256_cvtepi32_ps(whole)));
    // SAFETY: each reference covers the 32 bytes written, and `storeu` asks for no alignment.
    unsafe {
        _mm256_storeu_ps(coarse.scale.as_mut_ptr(), scale);
        _mm256_storeu_si256(coarse.bias.as_mut_ptr().cast(), bias);
        _mm256_storeu_ps(coarse.sum.as_mut_ptr(), sum);
    }
    let Coarse { scale: scales, bias, sum } = *coarse;
    for group in 0..8 {
        let place = group % 2 * 4 + group / 2;
        row.coarse_lanes[group * chunks + q] =
            Side { scale: scales[place], bias: bias[place], sum: sum[place] };
    }

    let halves = _mm512_permutexvar_epi32(FINE_SUMS.get(), halves);
    let scale = _mm512_permutexvar_ps(FINE_GROUPS.get(), _mm512_castps256_ps512(scale));
    let bias = _mm512_mullo_epi32(halves, _mm512_set1_epi32(-128));
    let sum = _mm512_mul_ps(scale, _mm512_cvtepi32_ps(halves));
    let fine = &mut row.fine[q];
    // SAFETY: each reference covers the 64 bytes written, and `storeu` asks for no alignment.
    unsafe {
        _mm512_storeu_ps(fine.scale.as_mut_ptr().cast(), scale);
        _mm512_storeu_si512(fine.bias.as_mut_ptr().cast(), bias);
        _mm512_storeu_ps(fine.sum.as_mut_ptr().cast(), sum);
    }
    let Fine { scale, bias, sum } = fine;
    for at in 0..2 {
        for (place, group) in FINE_ORDER.into_iter().enumerate() {
            row.fine_lanes[group * 2 * chunks + 2 * q + at] =
                Side { scale: scale[at][place], bias: bias[at][place], sum: sum[at][place] };
        }
    }
}

/// The largest number of each of eight vectors, in their order.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512dq")]
fn maxima(m: [__m512i; 8]) -> __m256i {
    let max = |a, b| _mm512_max_epu32(a, b);
    let halves =
        |a, b| max(_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b), _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b));
    let quarters =
        |a, b| max(_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), _mm512_shuffle_i64x2::<0b11_01_11_01>(a, b));
    // Four numbers each of vectors 0, 1, 2, 3; and of 4, 5, 6, 7.
    let a = quarters(halves(m[0], m[1]), halves(m[2], m[3]));
    let b = quarters(halves(m[4], m[5]), halves(m[6], m[7]));
    // Two each of 0, 4, 1, 5, 2, 6, 3, 7; then one, twice.
    let two = max(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
    let one = max(two, _mm512_shuffle_epi32::<0b10_11_00_01>(two));
    let order = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 0, 0, 0, 0, 0, 0, 0);
    _mm512_castsi512_si256(_mm512_permutexvar_epi32(order, one))
}

/// The scales of eight groups, and what their numbers are multiplied by.
#[inline]
#[target_feature(enable = "avx512f,avx512vl,avx512dq")]
fn scales(max: __m256i) -> (__m256, __m256) {
    let finite = _mm256_cmplt_epu32_mask(max, _mm256_set1_epi32(0x7F80_0000));
    let max = _mm256_castsi256_ps(max);
    let used = finite & _mm256_cmp_ps_mask::<_CMP_GE_OQ>(max, _mm256_set1_ps(1e-30));
    let top = _mm256_set1_ps(127.0);
    let scale = _mm256_maskz_div_ps(used, max, top);
    let scale = _mm256_mask_blend_ps(finite, _mm256_set1_ps(f32::NAN), scale);
    (scale, _mm256_maskz_div_ps(used, top, max))
}

/// Adds the four integers in each 128-bit lane of four vectors: lane `l` of the result holds the sums of lane `l` of each.
#[inline]
#[target_feature(enable = "avx512f")]
fn transposing_sum(z: [__m512i; 4]) -> __m512i {
    let fold = |a, b| _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    let (low, high) = (fold(z[0], z[1]), fold(z[2], z[3]));
    _mm512_add_epi32(_mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high))
}
