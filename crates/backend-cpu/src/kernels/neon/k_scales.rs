//! What `q4_k` and `q5_k` share: a header of 16 bytes, `d` and `dmin` in half precision and six-bit scales and minimums.

use super::*;

/// The scales and offsets of a block.
#[inline]
#[target_feature(enable = "neon")]
pub fn sides(chunk: &[u8]) -> Sides {
    let (a, b, c) = (four(chunk, 4), four(chunk, 8), four(chunk, 12));
    let eight = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let scales = eight(a & 0x3F3F_3F3F, c & 0x0F0F_0F0F | a >> 2 & 0x3030_3030);
    let mins = eight(b & 0x3F3F_3F3F, c >> 4 & 0x0F0F_0F0F | b >> 2 & 0x3030_3030);
    let (d, dmin) = (half(chunk, 0), half(chunk, 2));
    let ([scale_even, scale_odd], [min_even, min_odd]) = (floats(scales), floats(mins));
    Sides::both(
        [vmulq_f32(d, scale_even), vmulq_f32(d, scale_odd)],
        [vnegq_f32(vmulq_f32(dmin, min_even)), vnegq_f32(vmulq_f32(dmin, min_odd))],
    )
}

/// Eight bytes as floats: those at even places, at odd places.
#[inline]
#[target_feature(enable = "neon")]
fn floats(bytes: u64) -> [float32x4_t; 2] {
    let bytes = vcreate_u8(bytes);
    let even = vreinterpretq_s16_u16(vmovl_u8(vuzp1_u8(bytes, bytes)));
    let odd = vreinterpretq_s16_u16(vmovl_u8(vuzp2_u8(bytes, bytes)));
    [low_floats(even), low_floats(odd)]
}
