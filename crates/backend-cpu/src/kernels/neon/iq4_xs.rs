//! `iq4_xs` for NEON: blocks of 136 bytes, a half-precision scale, the high two bits and the low four of eight scales,
//! and eight times 16 bytes of half-split nibbles, indices into the levels of `iq4_nl`.

use super::iq4_nl::levels;
use super::*;

impl Load for Iq4Xs {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        levels(half_split(chunk, 32 * I + 8, 32 * I + 24))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        let d = half(chunk, 0);
        let low = u64::from(four(chunk, 4));
        // Scales of even groups are low nibbles, those of odd groups high ones; bits 2b of `high` belong to group b.
        let even = four_scales(low & 0x0F0F_0F0F, two(chunk, 2));
        let odd = four_scales(low >> 4 & 0x0F0F_0F0F, two(chunk, 2) >> 2);
        Sides::scales([vmulq_f32(d, even), vmulq_f32(d, odd)])
    }
}

/// Four scales: a byte of `low` and two bits of each four of `high`; what is stored is 32 too much.
#[inline]
#[target_feature(enable = "neon")]
fn four_scales(low: u64, high: u16) -> float32x4_t {
    let low = vmovl_u8(vcreate_u8(low));
    let shift = vcombine_s16(vcreate_s16(0xFFF4_FFF8_FFFC_0000), vdup_n_s16(0));
    let high = vandq_u16(vshlq_u16(vdupq_n_u16(high), shift), vdupq_n_u16(3));
    let scale = vreinterpretq_s16_u16(vorrq_u16(low, vshlq_n_u16::<4>(high)));
    low_floats(vsubq_s16(scale, vdupq_n_s16(32)))
}
