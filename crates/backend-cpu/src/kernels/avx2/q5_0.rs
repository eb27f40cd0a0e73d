//! `q5_0` for AVX2: blocks of 22 bytes, a scale, 32 fifth bits and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q5_0;

blocks!("q5_0", Q5_0, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([halves_at::<22>(row, 0); 2]);
    nibbles::<22>(row, 6, &mut wide);
    fifth_bits::<22>(row, 2, &mut wide);
    wide
}

/// Adds 16 where a number's bit is set: 32 of them at `at` of each block of `BYTES`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn fifth_bits<const BYTES: usize>(row: &[u8], at: usize, wide: &mut Wide) {
    let first = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1));
    let last = _mm256_add_epi8(first, _mm256_set1_epi8(2));
    let each = _mm256_set1_epi64x(0x8040_2010_0804_0201_u64 as i64);
    let sixteen = _mm256_set1_epi8(16);
    let bits = |at: usize| i32::from_le_bytes(*row[at..].first_chunk().expect("four bytes of bits"));
    for i in 0..4 {
        let at = 2 * BYTES * i + at;
        let both = _mm256_set_m128i(_mm_cvtsi32_si128(bits(at + BYTES)), _mm_cvtsi32_si128(bits(at)));
        let set = |pick| {
            let bits = _mm256_and_si256(_mm256_shuffle_epi8(both, pick), each);
            _mm256_and_si256(_mm256_cmpeq_epi8(bits, each), sixteen)
        };
        wide.low[i] = _mm256_or_si256(wide.low[i], set(first));
        wide.high[i] = _mm256_or_si256(wide.high[i], set(last));
    }
}
