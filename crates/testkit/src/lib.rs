//! Seeded inputs, the places of test data, golden logits, tiny models and a driver for plans; for tests and benches only.
#![forbid(unsafe_code)]

pub mod damage;
pub mod gguf;
pub mod golden;
pub mod ops;
pub mod pack;
pub mod runner;
mod temp_dir;
pub mod tiny;

pub use temp_dir::TempDir;

use std::path::{Path, PathBuf};

/// The folder of shared reference data (`NIBBLE_SHARED`, or `shared` beside the checkout), if it is there.
///
/// Prints a visible line when it is absent, so that a test that returns early is seen to have been skipped.
pub fn shared_dir() -> Option<PathBuf> {
    let dir = match std::env::var_os("NIBBLE_SHARED") {
        Some(dir) => PathBuf::from(dir),
        None => workspace_root().parent()?.join("shared"),
    };
    if dir.join("vectors").is_dir() {
        return Some(dir);
    }
    eprintln!("SKIPPED: no shared test data at {} (set NIBBLE_SHARED)", dir.display());
    None
}

/// The root of the checkout.
pub fn workspace_root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("crates/testkit lies two below the root")
}

/// The folder of downloaded test data (`NIBBLE_TEST_DATA`, or `target/test-data`), which `cargo xtask fetch` fills.
pub fn test_data_dir() -> PathBuf {
    match std::env::var_os("NIBBLE_TEST_DATA").filter(|folder| !folder.is_empty()) {
        Some(dir) => PathBuf::from(dir),
        None => workspace_root().join("target/test-data"),
    }
}

/// A small counter-based generator (SplitMix64): the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// A generator whose numbers depend on `seed` alone.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number in `0..n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.bits() % n as u64) as usize
    }

    /// A number in `-1.0..1.0`.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1u32 << 23) as f32 - 1.0
    }
}

/// `n` numbers in `-1.0..1.0`.
pub fn uniform(seed: u64, n: usize) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..n).map(|_| rng.uniform()).collect()
}
