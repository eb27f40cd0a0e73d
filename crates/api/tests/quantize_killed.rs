//! `quantize` when the system gets in its way: it is killed, or the disk is full.
#![cfg(unix)]

use nibble_api::{QuantizeOptions, Registry, quantize};
use nibble_testkit::{TempDir, workspace_root};
use std::{
    fs,
    ops::ControlFlow,
    path::Path,
    process::{Command, Output},
};

/// Names the output for a process that is to quantize, and nothing else.
const OUTPUT: &str = "NIBBLE_TEST_OUTPUT";

/// What the processes of these tests do.
fn quantize_a_model(output: &Path) {
    let model = workspace_root().join("golden/gguf/qwen3-f16.gguf");
    let options = QuantizeOptions::encoding("q8_0");
    let go_on = &mut |_: nibble_api::Progress<'_>| ControlFlow::Continue(());
    match quantize(&model, output, &options, &Registry::default(), go_on) {
        Ok(summary) => println!("\nresumed: {}", summary.resumed),
        Err(error) => panic!("\nerror: {error}"),
    }
}

/// Quantizes a model in another process, after `before` in its shell.
fn run(output: &Path, before: &str) -> Output {
    let test = "a_run_that_was_killed_goes_on_and_ends_as_a_fresh_one";
    let script = format!("ulimit -c 0; {before} exec \"$0\" --exact {test} --nocapture");
    let this = std::env::current_exe().unwrap();
    Command::new("sh").arg("-c").arg(script).arg(this).env(OUTPUT, output).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stdout[..], &output.stderr].concat()).into_owned()
}

/// Half the size of a file, in the units of `ulimit -f`: 512 bytes for some shells, 1024 for others.
fn half(path: &Path) -> u64 {
    fs::metadata(path).unwrap().len() / 2 / 1024
}

#[test]
fn a_run_that_was_killed_goes_on_and_ends_as_a_fresh_one() {
    if let Some(output) = std::env::var_os(OUTPUT) {
        return quantize_a_model(Path::new(&output));
    }
    let folder = TempDir::new("quantize-killed");
    let (fresh, killed) = (folder.file("fresh.gguf"), folder.file("killed.gguf"));
    let whole = run(&fresh, "");
    assert!(whole.status.success() && said(&whole).contains("resumed: 0"), "{}", said(&whole));
    // The kernel ends it at that size of the file, and it has no say in it: as kill -9, but always at the same place.
    let part = run(&killed, &format!("ulimit -f {};", half(&fresh)));
    assert_eq!(part.status.code(), None, "{}", said(&part));
    assert_eq!(folder.names(), ["fresh.gguf", "killed.gguf.partial", "killed.gguf.partial.journal"]);
    let again = run(&killed, "");
    let resumed = said(&again).lines().find_map(|line| line.strip_prefix("resumed: ")?.parse::<usize>().ok());
    assert!(again.status.success() && resumed > Some(0), "{}", said(&again));
    assert_eq!(fs::read(&fresh).unwrap(), fs::read(&killed).unwrap());
    assert_eq!(folder.names(), ["fresh.gguf", "killed.gguf"]);
}

#[test]
fn a_full_disk_is_said_in_one_sentence_and_loses_nothing() {
    let folder = TempDir::new("quantize-full");
    let (fresh, full) = (folder.file("fresh.gguf"), folder.file("full.gguf"));
    assert!(run(&fresh, "").status.success());
    // Whoever does not heed the signal gets an error where the file may not grow.
    let part = run(&full, &format!("trap '' XFSZ; ulimit -f {};", half(&fresh)));
    assert!(!part.status.success());
    let text = said(&part);
    let errors: Vec<&str> = text.lines().filter(|line| line.starts_with("error: ")).collect();
    let finished = "tensors are finished and stay in ";
    assert!(
        errors.len() == 1 && errors[0].contains("full.gguf.partial: ") && errors[0].contains(finished),
        "{text}"
    );
    assert_eq!(folder.names(), ["fresh.gguf", "full.gguf.partial", "full.gguf.partial.journal"]);
    assert!(run(&full, "").status.success());
    assert_eq!(fs::read(&fresh).unwrap(), fs::read(&full).unwrap());

    let none = run(&folder.file("none.gguf"), "trap '' XFSZ; ulimit -f 1;");
    assert!(!none.status.success() && said(&none).contains("nothing was written"), "{}", said(&none));
    assert_eq!(folder.names(), ["fresh.gguf", "full.gguf"]);
}
