//! Every fuzz target for a while. New inputs are kept in fuzz/corpus, which git ignores; seeds are made anew.

use crate::run::{command, output, root, run as run_command, target};
use std::{fs, path::Path};

/// The version of the tool that runs libFuzzer; installed if it is absent.
const CARGO_FUZZ: &str = "0.13.2";

/// A target and where inputs to start from lie.
const TARGETS: &[(&str, &[&str])] = &[
    ("gguf", &["golden/gguf"]),
    ("safetensors", &["golden/models/llama", "golden/models/qwen3", "golden/containers"]),
    ("directory", &[]),
    ("packed", &[]),
    ("config_json", &["golden/models"]),
    ("tokenizer_json", &["golden", "crates/tokenizer/tests"]),
    ("template", &["crates/chat/tests"]),
];

/// Largest input, so that a run sees many.
const MAX_LEN: &str = "-max_len=65536";

pub fn run(seconds: u64) -> Result<(), String> {
    if output("cargo", &["fuzz", "--version"]).is_none() {
        let install = command("cargo", &["install", "cargo-fuzz", "--locked", "--version", CARGO_FUZZ]);
        if let Err(why) = run_command(install) {
            println!("SKIPPED: fuzzing: {why}");
            return Ok(());
        }
    }
    for (name, seeds) in TARGETS {
        let corpus = root().join("fuzz/corpus").join(name);
        fs::create_dir_all(&corpus).map_err(|e| e.to_string())?;
        for seed in seeds.iter().map(|s| root().join(s)).filter(|s| s.exists()) {
            copy_seeds(&seed, &corpus, name)?;
        }
        let time = format!("-max_total_time={seconds}");
        let mut fuzz = command(
            "cargo",
            &["fuzz", "run", name, "--", &time, MAX_LEN, "-rss_limit_mb=2048", "-timeout=10", "-verbosity=0"],
        );
        // libFuzzer's instrumentation is behind an unstable flag of the stable compiler.
        fuzz.env("RUSTC_BOOTSTRAP", "1").env("CARGO_TARGET_DIR", target().join("fuzz"));
        run_command(fuzz)?;
    }
    Ok(())
}

/// Copies files that the target can start from, at any depth.
fn copy_seeds(from: &Path, corpus: &Path, target: &str) -> Result<(), String> {
    for entry in fs::read_dir(from).map_err(|e| format!("{}: {e}", from.display()))? {
        let path = entry.map_err(|e| e.to_string())?.path();
        if path.is_dir() {
            copy_seeds(&path, corpus, target)?;
            continue;
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let fits = match target {
            "gguf" => name.ends_with(".gguf"),
            "safetensors" => name.ends_with(".safetensors"),
            "config_json" => name == "config.json",
            "tokenizer_json" => name.contains("tokenizer") && name.ends_with(".json"),
            _ => name.ends_with(".jinja"),
        };
        if fits {
            let parent = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
            fs::copy(&path, corpus.join(format!("{parent}-{name}"))).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}
