//! The whole check, in the order in which it fails soonest.

use crate::{
    fetch, fuzz,
    run::{cargo, command, gpu, neon, output, run as run_command},
    tidy,
};

/// Seconds for each fuzz target; `cargo xtask fuzz` gives each one more.
const FUZZ_SECONDS: u64 = 10;

/// The version of the test runner; installed if none is there.
const NEXTEST: &str = "0.9.143";

pub fn run() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    tidy::run()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"])?;
    fetch::run()?;
    neon()?;
    browser();
    gpu()?;
    fuzz::run(FUZZ_SECONDS)?;
    let mut documentation = command("cargo", &["doc", "--workspace", "--no-deps"]);
    documentation.env("RUSTDOCFLAGS", "-D warnings");
    run_command(documentation)?;
    cargo(&["test", "--workspace", "--doc"])?;
    tests()
}

/// A browser for the test that looks at a page; without one that test says that it was skipped.
fn browser() {
    if let Err(why) = run_command(command("bash", &["scripts/setup-browser.sh"])) {
        println!("SKIPPED: browser: {why}");
    }
}

/// All tests. They come last, because their closing line is what readers of the log look for.
fn tests() -> Result<(), String> {
    let there = || output("cargo", &["nextest", "--version"]).is_some();
    if !there() {
        // Without it the tests are the same, only slower.
        if let Err(why) = cargo(&["install", "cargo-nextest", "--locked", "--version", NEXTEST]) {
            println!("SKIPPED: cargo-nextest: {why}");
        }
    }
    if there() {
        cargo(&["nextest", "run", "--workspace"])
    } else {
        cargo(&["test", "--workspace", "--all-targets"])
    }
}
