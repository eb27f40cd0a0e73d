//! `q2_k` for AVX2: planes of two bits under four-bit scales and minimums for every 16 numbers.

use super::*;
use crate::kernels::formats::Q2K;

blocks!("q2_k", Q2K, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let (codes, nibble) = (sixteen(row, 0), _mm_set1_epi8(15));
    let scales = fine_order(_mm_and_si128(codes, nibble));
    let minimums = fine_order(_mm_and_si128(_mm_srli_epi16::<4>(codes), nibble));
    let (d, dmin) = (head(row, 80), _mm256_xor_ps(head(row, 82), _mm256_set1_ps(-0.0)));
    let mut wide = empty([_mm256_mul_ps(d, scales[0]), _mm256_mul_ps(d, scales[1])]);
    wide.offset = [_mm256_mul_ps(dmin, minimums[0]), _mm256_mul_ps(dmin, minimums[1])];
    for n in 0..2 {
        let planes = tq2_0::planes(load(row, 16 + 32 * n));
        put_groups(&mut wide, 2 * n, planes[0], planes[1]);
        put_groups(&mut wide, 2 * n + 1, planes[2], planes[3]);
    }
    wide
}
