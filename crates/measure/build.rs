//! Tells the build which commit it is made from and in which profile, for reports.

use std::process::Command;

fn main() {
    let git = |args: &[&str]| {
        let out = Command::new("git").args(args).output().ok().filter(|out| out.status.success())?;
        Some(String::from_utf8_lossy(&out.stdout).trim().to_owned())
    };
    let commit = git(&["rev-parse", "--short=12", "HEAD"]);
    let changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    let mark = if changed { "+changes" } else { "" };
    println!("cargo:rustc-env=NIBBLE_COMMIT={}{mark}", commit.as_deref().unwrap_or("unknown"));
    println!("cargo:rustc-env=NIBBLE_PROFILE={}", std::env::var("PROFILE").unwrap_or_default());
    // `logs/HEAD` changes with every commit, `HEAD` with every branch; the sources make `+changes` true.
    for name in ["HEAD", "logs/HEAD"] {
        if let Some(path) = git(&["rev-parse", "--path-format=absolute", "--git-path", name]) {
            println!("cargo:rerun-if-changed={path}");
        }
    }
    println!("cargo:rerun-if-changed=../../crates");
    println!("cargo:rerun-if-changed=../../Cargo.lock");
}
