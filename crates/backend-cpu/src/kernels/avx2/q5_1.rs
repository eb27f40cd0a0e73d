//! `q5_1` for AVX2: blocks of 24 bytes, a scale, an offset, 32 fifth bits and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q5_1;

blocks!("q5_1", Q5_1, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([halves_at::<24>(row, 0); 2]);
    wide.offset = [halves_at::<24>(row, 2); 2];
    nibbles::<24>(row, 8, &mut wide);
    q5_0::fifth_bits::<24>(row, 4, &mut wide);
    wide
}
