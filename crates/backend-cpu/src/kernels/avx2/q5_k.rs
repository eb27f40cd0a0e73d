//! `q5_k` for AVX2: `q4_k` with a plane of fifth bits.

use super::*;
use crate::kernels::formats::Q5K;

blocks!("q5_k", Q5K, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = q4_k::scales(row);
    let (mask, one) = (_mm256_set1_epi8(15), _mm256_set1_epi8(1));
    let mut bits = load(row, 16);
    for i in 0..4 {
        let packed = load(row, 48 + 32 * i);
        let even = _mm256_slli_epi16::<4>(_mm256_and_si256(bits, one));
        let odd = _mm256_slli_epi16::<4>(_mm256_and_si256(_mm256_srli_epi16::<1>(bits), one));
        let low = _mm256_or_si256(_mm256_and_si256(packed, mask), even);
        let high = _mm256_or_si256(_mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask), odd);
        put_groups(&mut wide, i, low, high);
        bits = _mm256_srli_epi16::<2>(bits);
    }
    wide
}
