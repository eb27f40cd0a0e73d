//! `q4_1` for NEON: blocks of 20 bytes, a half-precision scale, an offset, and 16 bytes of half-split nibbles.

use super::*;

impl Load for Q4_1 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes(chunk: &[u8], i: usize) -> [int8x16_t; 4] {
        signed(half_split(chunk, 40 * i + 4, 40 * i + 24))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::both(halves(chunk, 0, 20), halves(chunk, 2, 20))
    }
}
