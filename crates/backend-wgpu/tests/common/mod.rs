//! The GPU that tests run on.

#![allow(dead_code, reason = "each test uses its part")]

pub mod tiles;

use nibble_backend_wgpu::{Gpu, GpuOptions, adapters};
use nibble_model::Model;
use std::path::Path;

/// The first adapter, opened; says visibly if there is none. With `NIBBLE_TEST_GPU=required` there must be one. A kernel that would
/// be left out fails the test.
pub fn gpu(options: GpuOptions) -> Option<Gpu> {
    let all = adapters();
    let Some(adapter) = all.first() else {
        let required = std::env::var_os("NIBBLE_TEST_GPU").is_some_and(|v| v == "required");
        assert!(!required, "NIBBLE_TEST_GPU=required, but no GPU was found");
        eprintln!("SKIPPED: no GPU, nor software that plays one (`cargo xtask gpu` brings one)");
        return None;
    };
    Some(Gpu::open(adapter, GpuOptions { exacting: true, ..options }).expect("an adapter that opens"))
}

/// The model at `path`.
pub fn open(path: &Path) -> Model {
    let checkpoint = nibble_format::open(path, &nibble_quant::Registry::default()).unwrap();
    nibble_model::build(&checkpoint).unwrap()
}
