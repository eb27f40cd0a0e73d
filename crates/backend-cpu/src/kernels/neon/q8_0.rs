//! `q8_0` for NEON: blocks of 34 bytes, a half-precision scale and 32 signed bytes.

use super::*;

impl Load for Q8_0 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        let at = 68 * I + 2;
        signed([load(chunk, at), load(chunk, at + 34), load(chunk, at + 16), load(chunk, at + 50)])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::scales(halves(chunk, 0, 34))
    }
}
