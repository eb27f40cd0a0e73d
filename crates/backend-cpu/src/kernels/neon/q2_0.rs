//! `q2_0` for NEON: blocks of 18 bytes with 64 numbers, a half-precision scale and four numbers in each byte.

use super::*;

impl Load for Q2_0 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        let bytes = load(chunk, 18 * I + 2);
        signed([sixteen(bytes, 0), sixteen(bytes, 2), sixteen(bytes, 1), sixteen(bytes, 3)])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::scales([four_halves(chunk, 0, 18); 2])
    }
}

/// The numbers from `16 * part` on.
#[inline]
#[target_feature(enable = "neon")]
fn sixteen(bytes: uint8x16_t, part: u8) -> uint8x16_t {
    // Byte 0 four times, byte 1 four times, and so on; then each of the four is shifted to its two bits.
    let from = vcombine_u8(vcreate_u8(0x0101_0101_0000_0000), vcreate_u8(0x0303_0303_0202_0202));
    let each = vqtbl1q_u8(bytes, vaddq_u8(from, vdupq_n_u8(4 * part)));
    let shift =
        vreinterpretq_s8_u32(vdupq_n_u32(u32::from_le_bytes([0, -2i8 as u8, -4i8 as u8, -6i8 as u8])));
    vandq_u8(vshlq_u8(each, shift), vdupq_n_u8(3))
}
