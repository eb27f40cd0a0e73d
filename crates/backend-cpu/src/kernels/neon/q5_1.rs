//! `q5_1` for NEON: blocks of 24 bytes, a half-precision scale, an offset, 32 fifth bits and 16 bytes of half-split
//! nibbles.

use super::q5_0::five_bits;
use super::*;

impl Load for Q5_1 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        let (a, b) = (48 * I, 48 * I + 24);
        five_bits(half_split(chunk, a + 8, b + 8), four(chunk, a + 4), four(chunk, b + 4))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::both(halves(chunk, 0, 24), halves(chunk, 2, 24))
    }
}
