//! `tq2_0` for NEON: blocks of 66 bytes, 64 bytes of two-bit planes and a half-precision scale.

use super::*;

impl Load for Tq2_0 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        signed(planes2(chunk, I))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::scales([half(chunk, 64); 2])
    }
}

/// The codes of pair `i` of groups: of 128 numbers in 32 bytes, each group of 32 has two bits of every byte.
#[inline]
#[target_feature(enable = "neon")]
pub fn planes2(bytes: &[u8], i: usize) -> [uint8x16_t; 4] {
    let (first, last) = (load(bytes, i / 2 * 32), load(bytes, i / 2 * 32 + 16));
    let low2 = |x| vandq_u8(x, vdupq_n_u8(3));
    if i.is_multiple_of(2) {
        [low2(first), low2(vshrq_n_u8::<2>(first)), low2(last), low2(vshrq_n_u8::<2>(last))]
    } else {
        let (first, last) = (vshrq_n_u8::<4>(first), vshrq_n_u8::<4>(last));
        [low2(first), vshrq_n_u8::<2>(first), low2(last), vshrq_n_u8::<2>(last)]
    }
}
