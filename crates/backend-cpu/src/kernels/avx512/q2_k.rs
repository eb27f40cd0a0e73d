//! `q2_k` for AVX-512: planes of two bits under four-bit scales and minimums for every 16 numbers.

use super::bytes::{empty, fine_order, heads, sixteen, unsigned};
use super::*;
use crate::kernels::formats::Q2K;

blocks!("q2_k", Q2K, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 84], b: &[u8; 84]) -> Pair {
    let (d, dmin) = (heads(a, b, 80), heads(a, b, 82));
    let dmin = _mm512_xor_ps(dmin, _mm512_set1_ps(-0.0));
    let nibble = _mm_set1_epi8(15);
    let both = fine_order(sixteen(a, 0), sixteen(b, 0));
    let mut pair = empty([_mm512_setzero_ps(); 2]);
    for part in 0..2 {
        pair.scale[part] = _mm512_mul_ps(d, unsigned(_mm_and_si128(both[part], nibble)));
        let min = _mm_and_si128(_mm_srli_epi16::<4>(both[part]), nibble);
        pair.offset[part] = _mm512_mul_ps(dmin, unsigned(min));
    }
    tq2_0::planes(&a[16..80], &b[16..80], &mut pair);
    pair
}
