//! Automation: `cargo xtask tidy`, `cargo xtask ci`.
fn main() {}
