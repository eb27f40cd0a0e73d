//! `iq4_xs` for AVX2: nibbles that name levels, under six-bit scales.

use super::*;
use crate::kernels::formats::Iq4Xs;
use crate::kernels::six_bits;

blocks!("iq4_xs", Iq4Xs, load_row);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_row(row: &[u8]) -> Wide {
    // 32 less: no byte borrows from the next, as each has 128 more meanwhile.
    let scales =
        ((six_bits::of_eight(row) | 0x8080_8080_8080_8080) - 0x2020_2020_2020_2020) ^ 0x8080_8080_8080_8080;
    let mut wide = empty([_mm256_mul_ps(head(row, 0), coarse_order(scales)); 2]);
    nibbles::<16>(row, 8, &mut wide);
    iq4_nl::levels(&mut wide);
    wide
}
