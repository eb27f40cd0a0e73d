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
        scale: [halves_at::<34>(a, b, 0); 2],
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
