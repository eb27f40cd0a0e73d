//! The vectors of 16 floats for NEON.
#![allow(unreachable_patterns, reason = "the widest tile is the second widest of others")]

use super::*;
use std::arch::aarch64::*;

tiles!("neon", [float32x4_t; 4], 2);

#[inline]
#[target_feature(enable = "neon")]
fn zero() -> [float32x4_t; 4] {
    [vdupq_n_f32(0.0); 4]
}

#[inline]
#[target_feature(enable = "neon")]
fn mul_add(w: [float32x4_t; 4], x: [float32x4_t; 4], sum: [float32x4_t; 4]) -> [float32x4_t; 4] {
    std::array::from_fn(|i| vfmaq_f32(sum[i], w[i], x[i]))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_x(x: &[f32], k: usize) -> [float32x4_t; 4] {
    let x: &[f32; 16] = x[k..].first_chunk().expect("16 numbers");
    // SAFETY: the reference covers the 64 bytes read, and the loads ask for no alignment.
    std::array::from_fn(|i| unsafe { vld1q_f32(x.as_ptr().add(4 * i)) })
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f32(row: &[u8], k: usize) -> [float32x4_t; 4] {
    let bytes: &[u8; 64] = row[4 * k..].first_chunk().expect("16 numbers");
    // SAFETY: the reference covers the 64 bytes read, and the loads ask for no alignment beyond that of bytes.
    std::array::from_fn(|i| vreinterpretq_f32_u8(unsafe { vld1q_u8(bytes.as_ptr().add(16 * i)) }))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_16_bits(row: &[u8], k: usize) -> [uint16x4_t; 4] {
    let bytes: &[u8; 32] = row[2 * k..].first_chunk().expect("16 numbers");
    // SAFETY: the reference covers the 32 bytes read, and the loads ask for no alignment beyond that of bytes.
    std::array::from_fn(|i| vreinterpret_u16_u8(unsafe { vld1_u8(bytes.as_ptr().add(8 * i)) }))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_f16(row: &[u8], k: usize) -> [float32x4_t; 4] {
    load_16_bits(row, k).map(|x| vcvt_f32_f16(vreinterpret_f16_u16(x)))
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bf16(row: &[u8], k: usize) -> [float32x4_t; 4] {
    load_16_bits(row, k).map(|x| vreinterpretq_f32_u32(vshll_n_u16::<16>(x)))
}

#[inline]
#[target_feature(enable = "neon")]
fn lanes(sum: [float32x4_t; 4]) -> [f32; 16] {
    let mut lanes = [0.0; 16];
    for i in 0..4 {
        // SAFETY: the array has room for the 64 bytes written, and the stores ask for no alignment.
        unsafe { vst1q_f32(lanes.as_mut_ptr().add(4 * i), sum[i]) }
    }
    lanes
}

/// Nothing: these processors follow each row of a tile by themselves.
#[inline(always)]
fn prefetch(_row: &[u8], _at: usize) {}
