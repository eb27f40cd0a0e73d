//! Automation. `cargo xtask ci` is the whole check; the others are its parts.
#![forbid(unsafe_code)]

mod ci;
mod fetch;
mod fuzz;
mod picture;
mod run;
mod tidy;

use std::process::ExitCode;

const HELP: &str = "cargo xtask COMMAND
  ci              everything: format, tidy, lints, documentation, fuzzing, NEON, GPU, tests
  tidy            the arrows between crates, the registries, where unsafe may stand
  fetch           real models, vocabularies and templates for tests, by name and hash
  fuzz [SECONDS]  every fuzz target for so long (60)
  neon            the kernels' tests for aarch64, under qemu
  gpu             the GPU backend's tests, on software Vulkan; its kernels in Metal's language
  picture         the README's picture, from a real run";

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    let result = match args[..] {
        ["ci"] => ci::run(),
        ["tidy"] => tidy::run(),
        ["fetch"] => fetch::run(),
        ["fuzz"] => fuzz::run(60),
        ["fuzz", seconds] => match seconds.parse() {
            Ok(seconds) => fuzz::run(seconds),
            Err(_) => Err(format!("fuzz: expected seconds, found `{seconds}`")),
        },
        ["neon"] => run::neon(),
        ["gpu"] => run::gpu(),
        ["picture"] => picture::run(),
        _ => Err(HELP.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
