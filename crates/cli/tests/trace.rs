//! `--trace` and `--check-finite` from outside.

use nibble_testkit::TempDir;
use std::{
    fs,
    path::Path,
    process::{Command, Stdio},
};

fn nibble(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nibble"));
    command
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .env("NO_COLOR", "1");
    command
}

/// Names of the complete events of a trace file.
fn names(path: &Path) -> Vec<String> {
    let file: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).expect("JSON");
    let events = file["traceEvents"].as_array().unwrap().iter().filter(|e| e["ph"] == "X");
    events.map(|e| e["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_trace_holds_the_whole_run_and_says_which_ops_took_the_time() {
    let dir = TempDir::new("cli-trace");
    let path = dir.file("t.json");
    let run = ["run", "--temp", "0", "-n", "5", "--threads", "2", "--trace", path.to_str().unwrap()];
    let output = nibble(&run).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert!(stderr.contains(" %  ") && stderr.contains("matmul ("), "{stderr}");
    let names = names(&path);
    for name in ["compile", "step", "sample", "detokenize"] {
        assert!(names.iter().any(|n| n == name), "{name}: {names:?}");
    }
}

#[test]
fn a_run_that_fails_leaves_a_trace_of_what_it_did() {
    let dir = TempDir::new("cli-trace-error");
    let path = dir.file("t.json");
    let run = ["run", "a story", "--ctx", "4", "--trace", path.to_str().unwrap()];
    assert_eq!(nibble(&run).output().unwrap().status.code(), Some(4));
    assert!(names(&path).iter().any(|n| n == "compile"));
}

#[test]
fn a_trace_replaces_an_older_one_and_nothing_else() {
    let dir = TempDir::new("cli-trace-replace");
    let (path, model) = (dir.file("t.json"), dir.file("m.gguf"));
    fs::copy(nibble_testkit::workspace_root().join("golden/gguf/llama-f32.gguf"), &model).unwrap();
    let run = |trace: &Path| {
        let args = [
            "run",
            model.to_str().unwrap(),
            "--tokens",
            "1,2",
            "-n",
            "2",
            "--trace",
            trace.to_str().unwrap(),
        ];
        nibble(&args).output().unwrap()
    };
    let before = fs::read(&model).unwrap();
    let refused = run(&model);
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("choose another name"));
    assert_eq!(fs::read(&model).unwrap(), before, "the model is still there");
    assert!(run(&path).status.success() && run(&path).status.success());
    assert!(names(&path).iter().any(|n| n == "step"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_run_leaves_a_whole_file() {
    use std::io::Read;
    let dir = TempDir::new("cli-trace-interrupt");
    let path = dir.file("t.json");
    let mut child =
        nibble(&["run", "--temp", "1", "--seed", "1", "--trace", path.to_str().unwrap()]).spawn().unwrap();
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(names(&path).iter().any(|n| n == "step"));
}

#[test]
fn checking_every_number_changes_no_answer() {
    let run = |more: &[&str]| {
        let args = [&["run", "--temp", "0", "-n", "8"], more].concat();
        let output = nibble(&args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    assert_eq!(run(&["--check-finite"]), run(&[]));
}
