//! `q4_k` for AVX2: 256 nibbles in planes under six-bit scales and minimums.

use super::*;
use crate::kernels::formats::Q4K;
use crate::kernels::six_bits;

blocks!("q4_k", Q4K, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = scales(row);
    let mask = _mm256_set1_epi8(15);
    for i in 0..4 {
        let packed = load(row, 16 + 32 * i);
        let high = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
        put_groups(&mut wide, i, _mm256_and_si256(packed, mask), high);
    }
    wide
}

/// Numbers with the scales and offsets of a block.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn scales(row: &[u8]) -> Wide {
    let [scales, minimums] = six_bits::scales_and_minimums(row);
    let mut wide = empty([_mm256_mul_ps(head(row, 0), coarse_order(scales)); 2]);
    let minimum = _mm256_mul_ps(head(row, 2), coarse_order(minimums));
    wide.offset = [_mm256_xor_ps(minimum, _mm256_set1_ps(-0.0)); 2];
    wide
}
