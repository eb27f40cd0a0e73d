//! Tells the build which commit it is made from and in which profile, for reports.

use std::{path::Path, process::Command};

/// Crates that no figure depends on. The others are watched; a change in one of them builds this crate again anyway.
const NOT_MEASURED: &[&str] = &["bench", "cli", "parity", "python", "server", "testkit"];

fn main() {
    let git = |args: &[&str]| {
        let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let root = Path::new("../..");
    let crates = std::fs::read_dir(root.join("crates")).into_iter().flatten().flatten();
    let measured = crates.filter(|krate| !NOT_MEASURED.iter().any(|name| krate.file_name() == *name));
    let mut watched: Vec<_> = measured.map(|krate| krate.path().to_string_lossy().into_owned()).collect();
    watched.push(root.join("Cargo.lock").to_string_lossy().into_owned());

    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let status = ["status", "--porcelain", "--untracked-files=no", "--"];
    let status: Vec<_> = status.into_iter().chain(watched.iter().map(String::as_str)).collect();
    let mark = if git(&status).is_some_and(|changes| !changes.is_empty()) { "+changes" } else { "" };
    println!("cargo:rustc-env=NIBBLE_COMMIT={}{mark}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=NIBBLE_PROFILE={}", std::env::var("PROFILE").unwrap_or_default());
    // `logs/HEAD` changes with every commit, `HEAD` with every branch.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    watched.iter().for_each(|path| println!("cargo:rerun-if-changed={path}"));
}
