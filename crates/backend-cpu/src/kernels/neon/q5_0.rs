//! `q5_0` for NEON: blocks of 22 bytes, a half-precision scale, 32 fifth bits and 16 bytes of half-split nibbles.

use super::*;

impl Load for Q5_0 {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        let (a, b) = (44 * I, 44 * I + 22);
        five_bits(half_split(chunk, a + 6, b + 6), four(chunk, a + 2), four(chunk, b + 2))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::scales(halves(chunk, 0, 22))
    }
}

/// The codes of a pair of groups: low four bits, and the fifth bits of 32 numbers each.
#[inline]
#[target_feature(enable = "neon")]
pub fn five_bits(low: [uint8x16_t; 4], a: u32, b: u32) -> [int8x16_t; 4] {
    let ([a_low, a_high], [b_low, b_high]) = (spread(a), spread(b));
    signed([
        vorrq_u8(low[0], a_low),
        vorrq_u8(low[1], b_low),
        vorrq_u8(low[2], a_high),
        vorrq_u8(low[3], b_high),
    ])
}

/// 32 bits as 0 or 16: the first 16, the last 16.
#[inline]
#[target_feature(enable = "neon")]
fn spread(bits: u32) -> [uint8x16_t; 2] {
    let bits = vreinterpretq_u8_u32(vdupq_n_u32(bits));
    let each = vreinterpretq_u8_u64(vdupq_n_u64(0x8040_2010_0804_0201));
    // The byte that holds each bit, eight times.
    let first = vcombine_u8(vdup_n_u8(0), vdup_n_u8(1));
    let spread = |from| vandq_u8(vtstq_u8(vqtbl1q_u8(bits, from), each), vdupq_n_u8(16));
    [spread(first), spread(vaddq_u8(first, vdupq_n_u8(2)))]
}
