//! Kernels for NEON with the eight-bit dot product instructions.

mod rows;
mod tile;

super::plain::plain_kernels!("neon,dotprod");

use super::format::Format;
use std::arch::aarch64::*;
use std::arch::asm;

/// Adds to each integer the dot product of its four signed bytes of `w` and of `x`.
#[inline]
#[target_feature(enable = "neon,dotprod")]
fn dot(mut sum: int32x4_t, w: int8x16_t, x: int8x16_t) -> int32x4_t {
    // SAFETY: one instruction on registers, which this function's features allow; std has no stable name for it.
    unsafe {
        asm!(
            "sdot {sum:v}.4s, {w:v}.16b, {x:v}.16b",
            sum = inout(vreg) sum, w = in(vreg) w, x = in(vreg) x,
            options(pure, nomem, nostack, preserves_flags)
        );
    }
    sum
}

#[inline]
#[target_feature(enable = "neon")]
fn load_bytes(bytes: &[u8; 16]) -> int8x16_t {
    // SAFETY: the reference covers the 16 bytes read.
    unsafe { vld1q_s8(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_codes(codes: &[i8]) -> int8x16_t {
    let codes: &[i8; 16] = codes.first_chunk().expect("sixteen codes");
    // SAFETY: the reference covers the 16 bytes read.
    unsafe { vld1q_s8(codes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_floats(x: &[f32]) -> float32x4_t {
    let x: &[f32; 4] = x.first_chunk().expect("four numbers");
    // SAFETY: the reference covers the 16 bytes read.
    unsafe { vld1q_f32(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_floats(x: float32x4_t, to: &mut [f32]) {
    let to: &mut [f32; 4] = to.first_chunk_mut().expect("four numbers");
    // SAFETY: the reference covers the 16 bytes written.
    unsafe { vst1q_f32(to.as_mut_ptr(), x) }
}
