//! `q4_0` for AVX2: blocks of 18 bytes, a half-precision scale and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q4_0;

blocks!("q4_0", Q4_0, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([halves_at::<18>(row, 0); 2]);
    nibbles::<18>(row, 2, &mut wide);
    wide
}
