//! Bare loops in registers: the most products that a core makes.

use super::dot::sdot;
use super::matrix::smmla;
use std::arch::aarch64::*;
use std::hint::black_box;

/// Sums in flight: enough for four pipes of four cycles.
const SUMS: usize = 16;

macro_rules! multiply {
    ($name:ident, $features:literal, $instruction:ident, $products:literal) => {
        /// Returns how many products it made.
        #[target_feature(enable = $features)]
        pub fn $name(rounds: usize) -> usize {
            let (a, b) = (black_box(vdupq_n_s8(3)), black_box(vdupq_n_s8(5)));
            let mut sums = [vdupq_n_s32(0); SUMS];
            for _ in 0..rounds {
                for sum in &mut sums {
                    *sum = $instruction(*sum, a, b);
                }
            }
            black_box(sums);
            rounds * SUMS * $products
        }
    };
}

multiply!(multiply_dot, "neon,dotprod", sdot, 16);
multiply!(multiply_matrix, "neon,dotprod,i8mm", smmla, 32);

/// Returns how many products of floats it made.
#[target_feature(enable = "neon")]
pub fn multiply_floats(rounds: usize) -> usize {
    // Each sum goes to 0.5 and stays there: no infinities, no denormal numbers.
    let (a, b) = (black_box(vdupq_n_f32(0.5)), black_box(vdupq_n_f32(0.25)));
    let mut sums = [vdupq_n_f32(0.0); SUMS];
    for _ in 0..rounds {
        for sum in &mut sums {
            *sum = vfmaq_f32(b, *sum, a);
        }
    }
    black_box(sums);
    rounds * SUMS * 4
}
