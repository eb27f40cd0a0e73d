//! `q4_k` for NEON: blocks of 144 bytes, a header (see [`k_scales`]) and 128 bytes of four-bit planes.

use super::*;

impl Load for Q4K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        signed(planes4(chunk, 16 + 32 * I))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        k_scales::sides(chunk)
    }
}

/// The codes of a pair of groups in 32 bytes: the first group in the low nibbles, the second in the high ones.
#[inline]
#[target_feature(enable = "neon")]
pub fn planes4(chunk: &[u8], at: usize) -> [uint8x16_t; 4] {
    let ([a0, b0], [a1, b1]) = (nibbles(load(chunk, at)), nibbles(load(chunk, at + 16)));
    [a0, b0, a1, b1]
}
