//! `q6_k` for NEON: blocks of 210 bytes. Of each half of 128 numbers 64 bytes of half-split nibbles; from 128 on of each
//! half 32 bytes of two-bit planes; from 192 on 16 signed scales; at 208 a half-precision scale.

use super::tq2_0::planes2;
use super::*;

impl Load for Q6K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        let nibble = |at| nibbles(load(chunk, I / 2 * 64 + at))[I % 2];
        let low = [nibble(0), nibble(32), nibble(16), nibble(48)];
        let high = planes2(&chunk[128..], I);
        signed(std::array::from_fn(|v| vorrq_u8(low[v], vshlq_n_u8::<4>(high[v]))))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        let d = half(chunk, 208);
        // Pairs of scales in turn belong to the first and to the second vector of `FINE_ORDER`.
        let pairs = vreinterpretq_u16_u8(load(chunk, 192));
        let even = vmovl_s8(vget_low_s8(vreinterpretq_s8_u16(vuzp1q_u16(pairs, pairs))));
        let odd = vmovl_s8(vget_low_s8(vreinterpretq_s8_u16(vuzp2q_u16(pairs, pairs))));
        let scale = [low_floats(even), low_floats(odd), high_floats(even), high_floats(odd)];
        Sides { scale: scale.map(|scale| vmulq_f32(d, scale)), offset: [vdupq_n_f32(0.0); 4] }
    }
}
