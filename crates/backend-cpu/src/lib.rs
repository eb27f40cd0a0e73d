//! The CPU backend: integer dot products on encoded weights, SIMD kernels, the thread pool.
//!
//! A graph becomes a `program`: a list of tasks over buffers of one arena, fused where that saves passes over memory
//! (`fuse`, `layout`). A step runs the tasks in order (`exec`); each is a region of the thread `pool`, cut by
//! rows or columns of its result and never along a sum, so neither threads nor neighbours change a bit of it.
//! Weights are read in place from the bytes of their file; everything else is reserved when a graph is compiled.

mod attend;
mod attention;
mod buffer;
mod ceiling;
mod cpu;
mod cut;
mod dispatch;
mod exec;
mod experts;
mod fuse;
mod gated_delta;
mod hadamard;
pub mod kernels;
mod kv;
mod lanes;
mod layout;
mod norm;
mod parts;
mod per_thread;
mod plan;
mod pointwise;
mod pool;
mod program;
mod rope;
mod route;
mod short_conv;
mod sizes;
mod strips;
mod trace;

pub use buffer::available_memory;
pub use cpu::{Cpu, CpuOptions};
pub use kernels::{Isa, own_kernels};
