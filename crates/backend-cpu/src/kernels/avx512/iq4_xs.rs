//! `iq4_xs` for AVX-512: nibbles that name levels, under six-bit scales.

use super::*;
use crate::kernels::formats::Iq4Xs;
use crate::kernels::six_bits::of_eight;

blocks!("iq4_xs", Iq4Xs, load_pair, HALVES, raw, iq4_nl::level, scales);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 136], b: &[u8; 136]) -> Pair {
    let packed = [raw(a, b, 0), raw(a, b, 1), raw(a, b, 2), raw(a, b, 3)];
    let [scale, offset] = scales(a, b);
    let (low, high) = (low4(packed), high4(packed));
    Pair { low: iq4_nl::levels(low), high: iq4_nl::levels(high), scale: [scale; 2], offset: [offset; 2] }
}

/// Vector `i` of four of packed nibbles, each still with its other half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn raw(a: &[u8], b: &[u8], i: usize) -> __m512i {
    join(half(a, 8 + 32 * i), half(b, 8 + 32 * i))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let head = |block: &[u8]| i32::from(u16::from_le_bytes([block[0], block[1]]));
    let halves = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_setr_epi32(head(a), head(b), 0, 0)));
    let row = _mm512_mask_blend_epi32(0xFF00, _mm512_setzero_si512(), _mm512_set1_epi32(2));
    let codes = _mm_sub_epi8(_mm_set_epi64x(of_eight(b) as i64, of_eight(a) as i64), _mm_set1_epi8(32));
    let order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    let numbers = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_shuffle_epi8(codes, order)));
    [_mm512_mul_ps(_mm512_permutexvar_ps(row, halves), numbers), _mm512_setzero_ps()]
}
