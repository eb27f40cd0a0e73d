//! `q5_k` for AVX-512: `q4_k` with a plane of fifth bits.

use super::*;
use crate::kernels::formats::Q5K;

blocks!("q5_k", Q5K, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 176], b: &[u8; 176]) -> Pair {
    let [scale, offset] = q4_k::scales(a, b);
    let [low, high] = q4_k::planes(&a[48..176], &b[48..176]);
    let bits = join(half(a, 16), half(b, 16));
    // The bits of the first, and of the last 16 numbers of each group, for two groups.
    let (first, last) = (_mm512_permutex_epi64::<0x44>(bits), _mm512_permutex_epi64::<0xEE>(bits));
    let mut pair = Pair { low, high, scale: [scale; 2], offset: [offset; 2] };
    let sixteen = _mm512_set1_epi8(16);
    let mut group = _mm512_broadcast_i32x4(_mm_set1_epi8(1));
    group = _mm512_mask_blend_epi64(0b1100_1100, group, _mm512_set1_epi8(2));
    for i in 0..4 {
        let set = _mm512_test_epi8_mask(first, group);
        pair.low[i] = _mm512_mask_add_epi8(pair.low[i], set, pair.low[i], sixteen);
        let set = _mm512_test_epi8_mask(last, group);
        pair.high[i] = _mm512_mask_add_epi8(pair.high[i], set, pair.high[i], sixteen);
        group = _mm512_add_epi8(group, group);
        group = _mm512_add_epi8(group, group);
    }
    pair
}
