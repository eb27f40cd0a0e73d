//! `q8_0` for AVX-512: blocks of 34 bytes, a half-precision scale and 32 signed bytes.

use super::*;
use crate::kernels::expand::Q8_0;

blocks!("q8_0", Q8_0, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8], b: &[u8]) -> Pair {
    let sign = _mm512_set1_epi8(-128);
    let mut pair = Pair {
        low: [_mm512_setzero_si512(); 4],
        high: [_mm512_setzero_si512(); 4],
        scale: [halves_at::<34>(a, b, 0); 2],
        offset: [_mm512_setzero_ps(); 2],
    };
    for i in 0..4 {
        let a = join(half(a, 68 * i + 2), half(a, 68 * i + 36));
        let b = join(half(b, 68 * i + 2), half(b, 68 * i + 36));
        pair.low[i] = _mm512_xor_si512(_mm512_shuffle_i64x2::<0b10_00_10_00>(a, b), sign);
        pair.high[i] = _mm512_xor_si512(_mm512_shuffle_i64x2::<0b11_01_11_01>(a, b), sign);
    }
    pair
}
