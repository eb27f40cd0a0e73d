//! What every op means, in the plainest Rust: no unsafe, no threads, no SIMD.
//!
//! Sums are made in f64 and rounded once to f32, the type of all values. Each op is a public function over slices, so
//! that the tests of other backends compare op by op; [`Reference`] runs whole graphs with them.
#![forbid(unsafe_code)]

mod activate;
mod attention;
mod columns;
mod elementwise;
mod embed;
mod experts;
mod gated_delta;
mod kv;
mod l2_norm;
mod matmul;
mod plan;
mod rms_norm;
mod rope;
mod route;
mod short_conv;
mod slice;
mod wanted;

pub use activate::{activate, activation, gated, soft_cap};
pub use attention::{Heads, attention};
pub use columns::columns;
pub use elementwise::{add, bias, gain, mul, scale};
pub use embed::embed;
pub use experts::{combine, expert_bias, expert_matmul};
pub use gated_delta::gated_delta;
pub use kv::{hadamard, round_kv};
pub use l2_norm::l2_norm;
pub use matmul::{dot, matmul};
pub use plan::{Reference, ReferencePlan};
pub use rms_norm::rms_norm;
pub use rope::{inverse_frequencies, rope};
pub use route::{route, scores};
pub use short_conv::short_conv;
pub use slice::slice;
pub use wanted::wanted;
