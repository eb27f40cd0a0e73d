//! `iq4_nl` for AVX2: blocks like those of `q4_0`, whose nibbles name levels.

use super::*;
use crate::kernels::formats::{Iq4Nl, LEVELS};

blocks!("iq4_nl", Iq4Nl, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([halves_at::<18>(row, 0); 2]);
    nibbles::<18>(row, 2, &mut wide);
    levels(&mut wide);
    wide
}

/// From nibbles to the levels that they name.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
pub fn levels(wide: &mut Wide) {
    let table = _mm256_broadcastsi128_si256(_mm_xor_si128(sixteen(&LEVELS, 0), _mm_set1_epi8(-128)));
    for i in 0..4 {
        wide.low[i] = _mm256_shuffle_epi8(table, wide.low[i]);
        wide.high[i] = _mm256_shuffle_epi8(table, wide.high[i]);
    }
}
