//! `q3_k` for AVX2: planes of two low bits and one high bit, under six-bit scales for every 16 numbers.

use super::*;
use crate::kernels::formats::Q3K;
use crate::kernels::six_bits;

blocks!("q3_k", Q3K, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let [first, last] = six_bits::of_sixteen(row);
    let scales = _mm_sub_epi8(_mm_set_epi64x(last as i64, first as i64), _mm_set1_epi8(32));
    let (d, scales) = (head(row, 108), fine_order(scales));
    let mut wide = empty([_mm256_mul_ps(d, scales[0]), _mm256_mul_ps(d, scales[1])]);
    let one = _mm256_set1_epi8(1);
    let mut bits = load(row, 0);
    for n in 0..2 {
        let mut planes = tq2_0::planes(load(row, 32 + 32 * n));
        for plane in &mut planes {
            *plane = _mm256_or_si256(*plane, _mm256_slli_epi16::<2>(_mm256_and_si256(bits, one)));
            bits = _mm256_srli_epi16::<1>(bits);
        }
        put_groups(&mut wide, 2 * n, planes[0], planes[1]);
        put_groups(&mut wide, 2 * n + 1, planes[2], planes[3]);
    }
    wide
}
