//! `q6_k` for AVX-512: planes of four low and two high bits, under a signed byte for every 16 numbers.

use super::*;
use crate::kernels::formats::Q6K;

blocks!("q6_k", Q6K, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 210], b: &[u8; 210]) -> Pair {
    let mut pair = Pair {
        low: [_mm512_setzero_si512(); 4],
        high: [_mm512_setzero_si512(); 4],
        scale: scales(a, b),
        offset: [_mm512_setzero_ps(); 2],
    };
    for n in 0..2 {
        let (low_a, low_b) = (load(a, 64 * n), load(b, 64 * n));
        let high = join(half(a, 128 + 32 * n), half(b, 128 + 32 * n));
        let first = _mm512_shuffle_i64x2::<0b10_00_10_00>(low_a, low_b);
        let last = _mm512_shuffle_i64x2::<0b11_01_11_01>(low_a, low_b);
        let first = six_bits(first, _mm512_permutex_epi64::<0x44>(high));
        let last = six_bits(last, _mm512_permutex_epi64::<0xEE>(high));
        (pair.low[2 * n], pair.low[2 * n + 1]) = (first[0], first[1]);
        (pair.high[2 * n], pair.high[2 * n + 1]) = (last[0], last[1]);
    }
    pair
}

/// The codes of planes 0 and 1, and of planes 2 and 3, from nibbles and pairs of bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn six_bits(low: __m512i, high: __m512i) -> [__m512i; 2] {
    let (nibble, pair) = (_mm512_set1_epi8(15), _mm512_set1_epi8(0x30));
    // Bits 0 and 1 for the first of two groups, bits 2 and 3 for the second; then bits 4 to 7.
    let up = _mm512_set4_epi64(
        0x0002_0002_0002_0002,
        0x0002_0002_0002_0002,
        0x0004_0004_0004_0004,
        0x0004_0004_0004_0004,
    );
    let down = _mm512_set4_epi64(0x0002_0002_0002_0002, 0x0002_0002_0002_0002, 0, 0);
    let top = [_mm512_sllv_epi16(high, up), _mm512_srlv_epi16(high, down)];
    let low = [_mm512_and_si512(low, nibble), _mm512_and_si512(_mm512_srli_epi16::<4>(low), nibble)];
    [
        _mm512_or_si512(low[0], _mm512_and_si512(top[0], pair)),
        _mm512_or_si512(low[1], _mm512_and_si512(top[1], pair)),
    ]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let head = |block: &[u8]| i32::from(u16::from_le_bytes([block[208], block[209]]));
    let halves = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_setr_epi32(head(a), head(b), 0, 0)));
    let row = _mm512_mask_blend_epi32(0xFF00, _mm512_setzero_si512(), _mm512_set1_epi32(2));
    let d = _mm512_permutexvar_ps(row, halves);
    let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    let eight =
        |block: &[u8], at: usize| i64::from_le_bytes(*block[at..].first_chunk().expect("eight scales"));
    let numbers = |at: usize| {
        let codes = _mm_shuffle_epi8(_mm_set_epi64x(eight(b, at), eight(a, at)), order);
        _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes)))
    };
    [numbers(192), numbers(200)]
}
