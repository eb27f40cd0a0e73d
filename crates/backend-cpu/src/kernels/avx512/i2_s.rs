//! `i2_s` for AVX-512: planes of two bits, the first group highest, without scales.

use super::bytes::empty;
use super::*;
use crate::kernels::format::Format;

/// Two blocks of 32 bytes.
struct I2S;

impl Format for I2S {
    const CHUNK_BYTES: usize = 64;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

blocks!("i2_s", I2S, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 64], b: &[u8; 64]) -> Pair {
    let mut pair = empty([_mm512_set1_ps(1.0); 2]);
    for n in 0..2 {
        let packed = join(half(a, 32 * n), half(b, 32 * n));
        // The code 3 means what 1 does: then its upper bit is taken away.
        let both = _mm512_and_si512(packed, _mm512_srli_epi16::<1>(packed));
        let three = _mm512_and_si512(both, _mm512_set1_epi8(0x55));
        tq2_0::spread::<true>(_mm512_sub_epi8(packed, _mm512_add_epi8(three, three)), n, &mut pair);
    }
    pair
}
