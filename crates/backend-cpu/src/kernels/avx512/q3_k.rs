//! `q3_k` for AVX-512: planes of two low bits and one high bit, under six-bit scales for every 16 numbers.

use super::bytes::{empty, fine_order, heads, select, signed};
use super::*;
use crate::kernels::formats::Q3K;
use crate::kernels::six_bits::of_sixteen;

blocks!("q3_k", Q3K, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 110], b: &[u8; 110]) -> Pair {
    let d = heads(a, b, 108);
    let numbers = fine_order(six_bits(a), six_bits(b));
    let mut pair = empty([_mm512_mul_ps(d, signed(numbers[0])), _mm512_mul_ps(d, signed(numbers[1]))]);
    tq2_0::planes(&a[32..96], &b[32..96], &mut pair);
    let bits = join(half(a, 0), half(b, 0));
    let (first, last) = (_mm512_permutex_epi64::<0x44>(bits), _mm512_permutex_epi64::<0xEE>(bits));
    let four = _mm512_set1_epi8(4);
    let odd = 0x0001_0001_0001_0001;
    for i in 0..4 {
        for (codes, bits) in [(&mut pair.low[i], first), (&mut pair.high[i], last)] {
            // The bit of the first of two groups, 2i, and of the second go to bit 2.
            let bit = if i == 0 {
                _mm512_srlv_epi16(_mm512_slli_epi16::<2>(bits), _mm512_set4_epi64(odd, odd, 0, 0))
            } else {
                let down = (2 * i as i64 - 2) * odd;
                _mm512_srlv_epi16(bits, _mm512_set4_epi64(down + odd, down + odd, down, down))
            };
            *codes = select(four, bit, *codes);
        }
    }
    pair
}

/// Sixteen scales, a signed byte each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn six_bits(block: &[u8]) -> __m128i {
    let [first, last] = of_sixteen(block);
    _mm_sub_epi8(_mm_set_epi64x(last as i64, first as i64), _mm_set1_epi8(32))
}
