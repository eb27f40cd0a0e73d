//! Kernels for NEON with 8-bit dot products (`sdot`), and with 8-bit matrix products (`smmla`) where there are any.
//!
//! One file per encoding says how 256 numbers of a row become sixteen vectors of codes and their scales ([`Load`]).
//! [`rows`] multiplies them as they come; [`tile`] lays 32 rows out for one of two matrix cores, [`dot`] and [`matrix`],
//! and adds up what those compute. Codes are signed here; where a format stores them with something added, few rows take
//! it back with the sum of the activation codes, and tiles hold them without.
//!
//! NEON itself is part of every aarch64; only functions that multiply codes ask for more.

mod dot;
mod limits;
mod matrix;
mod rows;
mod tile;

mod chunk;
mod iq4_nl;
mod iq4_xs;
mod k_scales;
mod q2_0;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod tq2_0;

use super::format::{CoarseChunk, FineChunk, Format};
use super::formats::{Iq4Nl, Iq4Xs, LEVELS, Q2_0, Q4_0, Q4_1, Q4K, Q5_0, Q5_1, Q5K, Q6K, Q8_0, Tq2_0};
use super::matmul::Blocks;
use std::arch::aarch64::*;

pub use limits::{multiply_dot, multiply_floats, multiply_matrix};

/// The kernels of an instruction set.
pub struct Kernels {
    /// Every encoding with a file here.
    pub direct: &'static [Blocks],
    /// Unpacked rows with groups of 32.
    pub coarse: Blocks,
    /// Unpacked rows with groups of 16.
    pub fine: Blocks,
}

macro_rules! kernels {
    ($blocks:ident) => {
        Kernels {
            direct: &[
                $blocks::<Q4_0>("q4_0"),
                $blocks::<Q4_1>("q4_1"),
                $blocks::<Q5_0>("q5_0"),
                $blocks::<Q5_1>("q5_1"),
                $blocks::<Q8_0>("q8_0"),
                $blocks::<Q4K>("q4_k"),
                $blocks::<Q5K>("q5_k"),
                $blocks::<Q6K>("q6_k"),
                $blocks::<Iq4Nl>("iq4_nl"),
                $blocks::<Iq4Xs>("iq4_xs"),
                $blocks::<Tq2_0>("tq2_0"),
                $blocks::<Q2_0>("q2_0"),
            ],
            coarse: $blocks::<CoarseChunk>("unpacked, groups of 32"),
            fine: $blocks::<FineChunk>("unpacked, groups of 16"),
        }
    };
}

/// With dot products.
pub static DOT: Kernels = kernels!(dot_blocks);

/// With matrix products as well.
pub static MATRIX: Kernels = kernels!(matrix_blocks);

const fn dot_blocks<F: Load>(name: &'static str) -> Blocks {
    Blocks { name, few: rows::product::<F>, fill: dot::fill::<F>, tile: dot::product::<F> }
}

const fn matrix_blocks<F: Load>(name: &'static str) -> Blocks {
    Blocks { name, few: rows::product::<F>, fill: matrix::fill::<F>, tile: matrix::product::<F> }
}

/// How a chunk of 256 numbers of an encoding gets into registers.
trait Load: Format {
    /// What [`Load::codes`] come with added: nothing where they are signed as they are stored.
    const ADDED: i32 = if Self::BIAS == 128 { 0 } else { Self::BIAS };

    /// The codes of groups `2 * I` and `2 * I + 1` of 32: the first 16 of each, then the last 16 of each.
    ///
    /// # Safety
    /// The processor must have NEON, as a trait's method cannot be safe and ask for it.
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4];

    /// The scales and offsets of a chunk.
    ///
    /// # Safety
    /// As for [`Load::codes`].
    unsafe fn sides(chunk: &[u8]) -> Sides;
}

/// Scales and offsets: of eight groups in [`super::activations::COARSE_ORDER`] in the first two vectors, or of sixteen,
/// eight and eight in [`super::activations::FINE_ORDER`].
#[derive(Clone, Copy)]
struct Sides {
    scale: [float32x4_t; 4],
    offset: [float32x4_t; 4],
}

impl Sides {
    /// Eight groups with no offsets.
    #[inline]
    #[target_feature(enable = "neon")]
    fn scales([even, odd]: [float32x4_t; 2]) -> Self {
        Self { scale: [even, odd, even, odd], offset: [vdupq_n_f32(0.0); 4] }
    }

    /// Eight groups with offsets.
    #[inline]
    #[target_feature(enable = "neon")]
    fn both(scales: [float32x4_t; 2], [even, odd]: [float32x4_t; 2]) -> Self {
        Self { offset: [even, odd, even, odd], ..Self::scales(scales) }
    }
}

#[inline]
#[target_feature(enable = "neon")]
fn load(bytes: &[u8], at: usize) -> uint8x16_t {
    let bytes: &[u8; 16] = bytes[at..].first_chunk().expect("16 bytes");
    // SAFETY: the reference covers the 16 bytes read, and the load asks for no alignment.
    unsafe { vld1q_u8(bytes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_codes(codes: &[i8], at: usize) -> int8x16_t {
    let codes: &[i8; 16] = codes[at..].first_chunk().expect("16 codes");
    // SAFETY: the reference covers the 16 bytes read, and the load asks for no alignment.
    unsafe { vld1q_s8(codes.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn load_floats(x: &[f32], at: usize) -> float32x4_t {
    let x: &[f32; 4] = x[at..].first_chunk().expect("four numbers");
    // SAFETY: the reference covers the 16 bytes read, and the load asks for no alignment.
    unsafe { vld1q_f32(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "neon")]
fn store_floats(x: float32x4_t, to: &mut [f32], at: usize) {
    let to: &mut [f32; 4] = to[at..].first_chunk_mut().expect("room for four numbers");
    // SAFETY: the reference covers the 16 bytes written, and the store asks for no alignment.
    unsafe { vst1q_f32(to.as_mut_ptr(), x) }
}

/// The two bytes at `at`.
#[inline(always)]
fn two(chunk: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([chunk[at], chunk[at + 1]])
}

/// The four bytes at `at`.
#[inline(always)]
fn four(chunk: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*chunk[at..].first_chunk().expect("four bytes"))
}

/// The half-precision number at `at`, in every lane.
#[inline]
#[target_feature(enable = "neon")]
fn half(chunk: &[u8], at: usize) -> float32x4_t {
    vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(two(chunk, at))))
}

/// Four half-precision numbers, the first at `at`, each `stride` bytes after the one before.
#[inline]
#[target_feature(enable = "neon")]
fn four_halves(chunk: &[u8], at: usize, stride: usize) -> float32x4_t {
    let number = |i: usize| u64::from(two(chunk, at + i * stride)) << (16 * i);
    let bits = vcreate_u16(number(0) | number(1) | number(2) | number(3));
    vcvt_f32_f16(vreinterpret_f16_u16(bits))
}

/// Of each of eight blocks of `stride` bytes the half-precision number at `at`: those of even blocks, of odd blocks.
#[inline]
#[target_feature(enable = "neon")]
fn halves(chunk: &[u8], at: usize, stride: usize) -> [float32x4_t; 2] {
    [four_halves(chunk, at, 2 * stride), four_halves(chunk, at + stride, 2 * stride)]
}

/// The low and the high nibbles.
#[inline]
#[target_feature(enable = "neon")]
fn nibbles(bytes: uint8x16_t) -> [uint8x16_t; 2] {
    [vandq_u8(bytes, vdupq_n_u8(15)), vshrq_n_u8::<4>(bytes)]
}

#[inline]
#[target_feature(enable = "neon")]
fn signed(codes: [uint8x16_t; 4]) -> [int8x16_t; 4] {
    codes.map(|codes| vreinterpretq_s8_u8(codes))
}

/// The codes of a pair of groups, each of 16 bytes of half-split nibbles, at `a` and at `b`.
#[inline]
#[target_feature(enable = "neon")]
fn half_split(chunk: &[u8], a: usize, b: usize) -> [uint8x16_t; 4] {
    let ([a_low, a_high], [b_low, b_high]) = (nibbles(load(chunk, a)), nibbles(load(chunk, b)));
    [a_low, b_low, a_high, b_high]
}

/// Small integers as floats, the lower half of a vector.
#[inline]
#[target_feature(enable = "neon")]
fn low_floats(x: int16x8_t) -> float32x4_t {
    vcvtq_f32_s32(vmovl_s16(vget_low_s16(x)))
}

/// The upper half.
#[inline]
#[target_feature(enable = "neon")]
fn high_floats(x: int16x8_t) -> float32x4_t {
    vcvtq_f32_s32(vmovl_s16(vget_high_s16(x)))
}

#[cfg(test)]
mod tests {
    use crate::kernels::Isa;

    /// An emulator plays processors with and without extensions; that it does is what makes other tests worth running.
    #[test]
    fn the_processor_is_the_one_that_the_environment_names() {
        match std::env::var("NIBBLE_TEST_ISA") {
            Ok(name) => assert_eq!(Isa::detect().name(), name),
            Err(_) => eprintln!("SKIPPED: NIBBLE_TEST_ISA names no instruction set"),
        }
    }
}
