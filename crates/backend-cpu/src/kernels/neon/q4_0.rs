//! `q4_0` for NEON: blocks of 18 bytes, a half-precision scale and 16 bytes of half-split nibbles.

use super::*;

impl Load for Q4_0 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        signed(half_split(chunk, 36 * I + 2, 36 * I + 20))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::scales(halves(chunk, 0, 18))
    }
}
