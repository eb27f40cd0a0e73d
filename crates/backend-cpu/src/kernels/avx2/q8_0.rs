//! `q8_0` for AVX2: blocks of 34 bytes, a half-precision scale and 32 signed bytes.

use super::*;
use crate::kernels::formats::Q8_0;

blocks!("q8_0", Q8_0, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    let mut wide = empty([halves_at::<34>(row, 0); 2]);
    for i in 0..4 {
        put_groups(&mut wide, i, load(row, 68 * i + 2), load(row, 68 * i + 36));
    }
    wide
}
