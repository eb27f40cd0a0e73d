//! `q4_1` for AVX2: blocks of 20 bytes, a scale, an offset and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q4_1;

blocks!("q4_1", Q4_1, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([halves_at::<20>(row, 0); 2]);
    wide.offset = [halves_at::<20>(row, 2); 2];
    nibbles::<20>(row, 4, &mut wide);
    wide
}
