//! The GPU backend: kernels in WGSL, written by Rust functions, run through wgpu on Vulkan and Metal.
//!
//! A graph becomes a `tape`: a list of calls of kernels on buffers, with variants for few and for many rows (`compile`).
//! Weights are taken apart into planes of codes and scales when they are brought to the device (`form`, `pack`). A step is
//! one command buffer with one pass: all of the tape.

#[cfg(test)]
extern crate self as nibble_backend_wgpu;

mod adapters;
mod build;
#[cfg(test)]
#[path = "../tests/common/mod.rs"]
mod common;
mod compile;
mod decode;
mod device;
mod feed;
mod form;
mod gpu;
mod kernels;
#[cfg(target_vendor = "apple")]
mod metal;
#[cfg(test)]
mod metal_tests;
mod modes;
mod pack;
mod plan;
mod selfcheck;
mod shader;
mod tape;
mod trace;
mod trellis;
mod trust;
#[cfg(test)]
mod trust_tests;
mod tune;
mod turns;

pub use adapters::{Adapter, Caps, adapters};
pub use form::kept;
pub use gpu::{Gpu, GpuOptions};
pub use selfcheck::Cache;
pub use tune::Tuning;
