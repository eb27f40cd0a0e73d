//! `q4_1` for NEON: blocks of 20 bytes, a half-precision scale, an offset, and 16 bytes of half-split nibbles.

use super::*;

impl Load for Q4_1 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        signed(half_split(chunk, 40 * I + 4, 40 * I + 24))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::both(halves(chunk, 0, 20), halves(chunk, 2, 20))
    }
}
