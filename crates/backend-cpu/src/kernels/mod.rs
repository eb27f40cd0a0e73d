//! The hot path: products of encoded matrices with activations, and the small vector functions between them.
//!
//! # The numbers
//!
//! Every kernel gives the same bits on every instruction set, for one row of activations or many, however the rows of
//! the matrix are split. What they compute is therefore fixed here.
//!
//! *Integer codecs.* Activations are rounded to eight bits in groups of 32 ([`activations`]). A row of weights has a
//! scale, and perhaps an offset, for each group of 32 or 16 codes ([`nibble_quant::Unpacked`]). Group `g` of the row is
//! added to lane `g % 8`, in the order of the row:
//!
//! ```text
//! lane = fma(w.scale * x.scale, dot(w.codes, x.codes) as f32, lane)   the dot product is an exact integer
//! lane = fma(w.offset, x.scale * (sum(x.codes) as f32), lane)         over the same 32 or 16 codes
//! y = ((l0 + l4) + (l2 + l6)) + ((l1 + l5) + (l3 + l7)) + 0.0
//! ```
//!
//! Adding 0 at the end makes a result of -0 into +0, so that formats without offsets may skip the second line.
//!
//! Eight lanes suit both uses. For few rows of activations a vector holds the sums of eight groups (of two rows of
//! weights in 512 bits); for many, its lanes are sixteen outputs and the eight lanes of the contract are an outer loop.
//!
//! *Trellises* (`exl3`): activations are rounded to twelve bits in the same groups. The codes of weights are integers of 16
//! bits with one scale and offset for all, so that only the activations' scale belongs to a group:
//!
//! ```text
//! acc = fma(dot(w.codes, x.codes) as f32, x.scale, acc)   for every group in turn; the dot product is an exact integer
//! all = fma(sum(x.codes) as f32, x.scale, all)            the same for each row of weights
//! y = fma(offset, all, scale * acc)
//! ```
//!
//! *Float codecs*, and every codec in exact mode: number `k` goes to lane `k % 16` by `lane = fma(w, x, lane)`; then lanes
//! `i` and `i + 8` are added, and the eight sums by the tree above.

pub mod activations;
mod float;
mod format;
mod formats;
mod isa;
pub mod limits;
mod matmul;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod six_bits;
mod strips;
mod trellis;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;

pub use activations::{Activations, Forms, PANEL_ROWS, PANELS_FROM};
pub use isa::{Avx2, Avx512, Isa, Neon, NeonI8mm};
pub use matmul::{Input, Kernel, Matrix, Output, Scratch, TILE_ROWS, own_kernels};
pub use strips::STRIP_ROWS;

#[cfg(test)]
mod tests;
