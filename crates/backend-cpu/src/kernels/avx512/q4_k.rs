//! `q4_k` for AVX-512: 256 nibbles in planes under six-bit scales and minimums.

use super::*;
use crate::kernels::formats::Q4K;
use crate::kernels::six_bits::scales_and_minimums;

blocks!("q4_k", Q4K, load_pair, GROUPS, raw, same, scales);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 144], b: &[u8; 144]) -> Pair {
    let [scale, offset] = scales(a, b);
    let [low, high] = planes(&a[16..144], &b[16..144]);
    Pair { low, high, scale: [scale; 2], offset: [offset; 2] }
}

/// Vector `i` of four of packed nibbles: two groups of both blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn raw(a: &[u8], b: &[u8], i: usize) -> __m512i {
    join(half(a, 16 + 32 * i), half(b, 16 + 32 * i))
}

/// The nibbles of two blocks: 32 bytes hold a group in their low halves and the next in their high halves.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn planes(a: &[u8], b: &[u8]) -> [[__m512i; 4]; 2] {
    let mask = _mm512_set1_epi8(15);
    let first = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let last = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    let mut out = [[_mm512_setzero_si512(); 4]; 2];
    for i in 0..4 {
        let both = join(half(a, 32 * i), half(b, 32 * i));
        let even = _mm512_and_si512(both, mask);
        let odd = _mm512_and_si512(_mm512_srli_epi16::<4>(both), mask);
        out[0][i] = _mm512_permutex2var_epi64(even, first, odd);
        out[1][i] = _mm512_permutex2var_epi64(even, last, odd);
    }
    out
}

/// Scales and offsets of two blocks.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let (a_codes, b_codes) = (scales_and_minimums(a), scales_and_minimums(b));
    let head = |block: &[u8]| i32::from_le_bytes(*block.first_chunk().expect("a block has a head"));
    let halves = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_setr_epi32(head(a), head(b), 0, 0)));
    let pick = |from: i32| {
        let row = _mm512_set1_epi32(from);
        _mm512_permutexvar_ps(_mm512_mask_add_epi32(row, 0xFF00, row, _mm512_set1_epi32(2)), halves)
    };
    let order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    let numbers = |which: usize| {
        let codes = _mm_set_epi64x(b_codes[which] as i64, a_codes[which] as i64);
        _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_shuffle_epi8(codes, order)))
    };
    let minimum = _mm512_mul_ps(pick(1), numbers(1));
    [_mm512_mul_ps(pick(0), numbers(0)), _mm512_xor_ps(minimum, _mm512_set1_ps(-0.0))]
}
