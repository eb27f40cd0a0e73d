//! WGSL by Rust: each function here returns a kernel for stated parameters. Loops that matter are written out, as naga
//! translates a loop into one that Metal's compiler does not unroll.

pub mod argmax;
pub mod attention;
pub mod chain;
pub mod combine;
pub mod copy;
pub mod draw;
pub mod embed;
pub mod ends;
pub mod gated_delta;
pub mod gemm;
pub mod gemv;
pub mod group;
pub mod hadamard;
pub mod kv;
pub mod kv_blocks;
pub mod norm;
pub mod program;
pub mod quantize;
pub mod rope;
pub mod rotated;
pub mod route;
pub mod short_conv;
pub mod slice;
pub mod trellis;
pub mod weights;
