//! Running other programs.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

/// The root of the checkout.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the root")
}

/// The folder that cargo builds into.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command in the root of the checkout.
pub fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end.
///
/// # Errors
/// If it cannot start or does not succeed.
pub fn run(mut command: Command) -> Result<(), String> {
    let words: Vec<_> = command.get_args().map(|a| a.to_string_lossy().into_owned()).collect();
    let line = format!("{} {}", command.get_program().to_string_lossy(), words.join(" "));
    println!("--- {line}");
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{line}: cannot start: {e}"))?;
    println!("--- {:.0} s", start.elapsed().as_secs_f64());
    if status.success() { Ok(()) } else { Err(format!("{line}: {status}")) }
}

/// Runs cargo.
///
/// # Errors
/// If it does not succeed.
pub fn cargo(args: &[&str]) -> Result<(), String> {
    run(command("cargo", args))
}

/// What a command prints, or `None` if it cannot start or fails.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    let out = command(program, args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).into_owned())
}

/// The kernels' tests for aarch64 under qemu.
///
/// # Errors
/// If a test fails; a machine where the tools cannot be installed is told of, and is no failure.
pub fn neon() -> Result<(), String> {
    run(command("bash", &["scripts/test-neon.sh"]))
}

/// The GPU backend's tests on software Vulkan.
///
/// # Errors
/// If a test fails; a machine where the software cannot be had is told of, and is no failure.
pub fn gpu() -> Result<(), String> {
    run(command("bash", &["scripts/test-gpu.sh"]))
}
