//! `tq2_0` for AVX2: planes of two bits under one scale.

use super::*;
use crate::kernels::formats::Tq2_0;

blocks!("tq2_0", Tq2_0, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([head(row, 64); 2]);
    for n in 0..2 {
        let planes = planes(load(row, 32 * n));
        put_groups(&mut wide, 2 * n, planes[0], planes[1]);
        put_groups(&mut wide, 2 * n + 1, planes[2], planes[3]);
    }
    wide
}

/// Four planes of two bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn planes(bytes: __m256i) -> [__m256i; 4] {
    let mask = _mm256_set1_epi8(3);
    [
        _mm256_and_si256(bytes, mask),
        _mm256_and_si256(_mm256_srli_epi16::<2>(bytes), mask),
        _mm256_and_si256(_mm256_srli_epi16::<4>(bytes), mask),
        _mm256_and_si256(_mm256_srli_epi16::<6>(bytes), mask),
    ]
}
