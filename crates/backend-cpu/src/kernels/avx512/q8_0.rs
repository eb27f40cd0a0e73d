//! `q8_0` for AVX-512: blocks of 34 bytes, a half-precision scale and 32 signed bytes.

use super::*;
use crate::kernels::expand::Q8_0;

blocks!("q8_0", Q8_0, load_pair);

/// Two blocks of 68 bytes are loaded from byte 2 and from byte 4 on.
static LOW: Words = two_halves(0, 34);
static HIGH: Words = two_halves(14, 48);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8], b: &[u8]) -> Pair {
    let (low, high, sign) = (LOW.get(), HIGH.get(), _mm512_set1_epi8(-128));
    let mut pair = Pair {
        low: [_mm512_setzero_si512(); 4],
        high: [_mm512_setzero_si512(); 4],
        scale: [scales(a, b); 2],
        offset: [_mm512_setzero_ps(); 2],
    };
    for i in 0..4 {
        let lows = _mm512_permutex2var_epi16(load(a, 68 * i + 2), low, load(b, 68 * i + 2));
        let highs = _mm512_permutex2var_epi16(load(a, 68 * i + 4), high, load(b, 68 * i + 4));
        pair.low[i] = _mm512_xor_si512(lows, sign);
        pair.high[i] = _mm512_xor_si512(highs, sign);
    }
    pair
}

/// The scales of eight blocks of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> __m512 {
    let bits = |row: &[u8]| {
        let d = |group: usize| i16::from_le_bytes([row[34 * group], row[34 * group + 1]]);
        _mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7))
    };
    _mm512_cvtph_ps(_mm256_set_m128i(bits(b), bits(a)))
}
