//! `q2_0` for AVX-512: blocks of 18 bytes, a scale and 64 numbers of two bits in order.

use super::*;
use crate::kernels::formats::Q2_0;

blocks!("q2_0", Q2_0, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 72], b: &[u8; 72]) -> Pair {
    let mut pair = Pair {
        low: [_mm512_setzero_si512(); 4],
        high: [_mm512_setzero_si512(); 4],
        scale: [scales(a, b); 2],
        offset: [_mm512_setzero_ps(); 2],
    };
    // Each of four bytes four times; the first group of a block in even lanes, the second in odd ones.
    let even = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    let odd = _mm_add_epi8(even, _mm_set1_epi8(8));
    let four = _mm512_broadcast_i64x4(_mm256_set_m128i(odd, even));
    let next_four = _mm512_add_epi8(four, _mm512_set1_epi8(4));
    for i in 0..4 {
        let block = join(twice(a, 18 * i + 2), twice(b, 18 * i + 2));
        pair.low[i] = two_bits(_mm512_shuffle_epi8(block, four));
        pair.high[i] = two_bits(_mm512_shuffle_epi8(block, next_four));
    }
    pair
}

/// Bits 0, 2, 4, 6 of four equal bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn two_bits(bytes: __m512i) -> __m512i {
    let low =
        _mm512_and_si512(_mm512_srlv_epi16(bytes, _mm512_set1_epi32(0x0004_0000)), _mm512_set1_epi16(3));
    let high = _mm512_srlv_epi16(bytes, _mm512_set1_epi32(0x0006_0002));
    _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi16(0x0300)))
}

/// Sixteen bytes, twice.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn twice(bytes: &[u8], at: usize) -> __m256i {
    let bytes: &[u8; 16] = bytes[at..].first_chunk().expect("a block has sixteen bytes of codes");
    // SAFETY: the reference covers the 16 bytes read, and `loadu` asks for no alignment.
    _mm256_broadcastsi128_si256(unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) })
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> __m512 {
    let bits = |row: &[u8]| {
        let d = |block: usize| i16::from_le_bytes([row[18 * block], row[18 * block + 1]]);
        _mm_setr_epi16(d(0), d(1), d(2), d(3), d(0), d(1), d(2), d(3))
    };
    _mm512_cvtph_ps(_mm256_set_m128i(bits(b), bits(a)))
}
