//! `q8_0` for AVX-512: blocks of 34 bytes, a half-precision scale and 32 signed bytes.

use super::*;
use crate::kernels::formats::Q8_0;

blocks!("q8_0", Q8_0, load_pair, BYTES, raw, same, scales);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 272], b: &[u8; 272]) -> Pair {
    let mut pair = bytes::empty([halves_at::<34>(a, b, 0); 2]);
    signed_bytes::<34>(&a[2..], &b[2..], &mut pair);
    pair
}

/// The codes of eight groups, which lie `STEP` bytes apart, with 128 added.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn signed_bytes<const STEP: usize>(a: &[u8], b: &[u8], pair: &mut Pair) {
    let sign = _mm512_set1_epi8(-128);
    for i in 0..4 {
        let at = 2 * STEP * i;
        let a = join(half(a, at), half(a, at + STEP));
        let b = join(half(b, at), half(b, at + STEP));
        pair.low[i] = _mm512_xor_si512(_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), sign);
        pair.high[i] = _mm512_xor_si512(_mm512_shuffle_i64x2::<0b11_01_11_01>(a, b), sign);
    }
}

/// The codes of block `i` of both rows, with 128 added.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn raw(a: &[u8], b: &[u8], i: usize) -> __m512i {
    _mm512_xor_si512(join(half(a, 34 * i + 2), half(b, 34 * i + 2)), _mm512_set1_epi8(-128))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    [halves_at::<34>(a, b, 0), _mm512_setzero_ps()]
}
