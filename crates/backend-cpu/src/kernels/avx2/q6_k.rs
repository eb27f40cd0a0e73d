//! `q6_k` for AVX2: planes of four low and two high bits, under a signed byte for every 16 numbers.

use super::*;
use crate::kernels::formats::Q6K;

blocks!("q6_k", Q6K, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let (d, scales) = (head(row, 208), fine_order(sixteen(row, 192)));
    let mut wide = empty([_mm256_mul_ps(d, scales[0]), _mm256_mul_ps(d, scales[1])]);
    let (nibble, pair) = (_mm256_set1_epi8(15), _mm256_set1_epi8(0x30));
    for n in 0..2 {
        let (a, b, high) = (load(row, 64 * n), load(row, 64 * n + 32), load(row, 128 + 32 * n));
        let code = |low, high| _mm256_or_si256(_mm256_and_si256(low, nibble), _mm256_and_si256(high, pair));
        let first = code(a, _mm256_slli_epi16::<4>(high));
        let second = code(b, _mm256_slli_epi16::<2>(high));
        let third = code(_mm256_srli_epi16::<4>(a), high);
        let fourth = code(_mm256_srli_epi16::<4>(b), _mm256_srli_epi16::<2>(high));
        put_groups(&mut wide, 2 * n, first, second);
        put_groups(&mut wide, 2 * n + 1, third, fourth);
    }
    wide
}
