//! `q2_0` for AVX2: blocks of 18 bytes, a scale and 64 numbers of two bits in order.

use super::*;
use crate::kernels::formats::Q2_0;

blocks!("q2_0", Q2_0, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let d = |block: usize| i16::from_le_bytes([row[18 * block], row[18 * block + 1]]);
    let scale = _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(1), d(2), d(3), d(0), d(1), d(2), d(3)));
    let mut wide = empty([scale; 2]);
    // Each of four bytes four times, for both groups of a block.
    let first = _mm_setr_epi8(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    let first = _mm256_set_m128i(_mm_add_epi8(first, _mm_set1_epi8(8)), first);
    let last = _mm256_add_epi8(first, _mm256_set1_epi8(4));
    for i in 0..4 {
        let block = _mm256_broadcastsi128_si256(sixteen(row, 18 * i + 2));
        wide.low[i] = two_bits(_mm256_shuffle_epi8(block, first));
        wide.high[i] = two_bits(_mm256_shuffle_epi8(block, last));
    }
    wide
}

/// Bits 0, 2, 4, 6 of four equal bytes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn two_bits(bytes: __m256i) -> __m256i {
    let pick = |bytes, mask| _mm256_and_si256(bytes, _mm256_set1_epi32(mask));
    let (a, b) = (pick(bytes, 3), pick(_mm256_srli_epi32::<2>(bytes), 0x0300));
    let c = pick(_mm256_srli_epi32::<4>(bytes), 0x0003_0000);
    let d = pick(_mm256_srli_epi32::<6>(bytes), 0x0300_0000);
    _mm256_or_si256(_mm256_or_si256(a, b), _mm256_or_si256(c, d))
}
