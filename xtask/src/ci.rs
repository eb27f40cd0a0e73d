//! The whole check, in the order in which it fails soonest.

use crate::{
    fetch, fuzz,
    run::{cargo, command, neon, run as run_command},
    tidy,
};

/// Seconds for each fuzz target; `cargo xtask fuzz` gives each one more.
const FUZZ_SECONDS: u64 = 10;

pub fn run() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    fetch::run()?;
    neon()?;
    fuzz::run(FUZZ_SECONDS)?;
    let mut documentation = command("cargo", &["doc", "--workspace", "--no-deps"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    run_command(documentation)?;
    cargo(&["test", "--workspace", "--doc"])?;
    // Last, because its closing line is what readers of the log look for.
    cargo(&["nextest", "run", "--workspace"])
}
