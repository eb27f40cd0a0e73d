//! The command in the hands of careless and hostile people: closed streams, pipes for files, signals, bad targets.
#![cfg(unix)]

use nibble_testkit::TempDir;
use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};

/// A folder with a small model in it.
fn folder(test: &str) -> TempDir {
    let dir = TempDir::new(&format!("hostile-{test}"));
    fs::copy(golden(), dir.file("m.gguf")).unwrap();
    dir
}

fn golden() -> PathBuf {
    nibble_testkit::workspace_root().join("golden/gguf/llama-f32.gguf")
}

fn nibble() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nibble"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).env("NO_COLOR", "1");
    command
}

fn args(text: &str, model: &Path) -> Vec<PathBuf> {
    text.split(' ').map(|word| if word == "MODEL" { model.to_owned() } else { word.into() }).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A stream whose reader is gone.
fn broken_pipe() -> Stdio {
    std::io::pipe().unwrap().1.into()
}

#[test]
fn a_reader_that_goes_away_ends_the_command_without_a_word() {
    for text in [
        "run MODEL --tokens 1,2 -n 0",
        "run MODEL --tokens 1,2 -n 3",
        "run MODEL --tokens 1,2 -n 3 --json",
        "inspect MODEL",
        "tokenize MODEL ab",
        "logits MODEL --tokens 1 --json",
        "bench MODEL -p 2 -g 0 -r 1 --threads 1",
        "devices",
    ] {
        let output = nibble().args(args(text, &golden())).stdout(broken_pipe()).output().unwrap();
        assert_eq!(output.status.code(), Some(141), "{text}: {}", stderr(&output));
        assert!(!stderr(&output).contains("error"), "{text}: {}", stderr(&output));
    }
}

#[test]
fn a_closed_stderr_changes_neither_text_nor_exit_code() {
    for (text, code) in [
        ("run MODEL --tokens 1,2 -n 3 --temp 0", 0),
        ("run missing.gguf x", 3),
        ("run MODEL --tokens 1,2 --memory-budget 0", 4),
    ] {
        let plain = nibble().args(args(text, &golden())).output().unwrap();
        let closed = nibble().args(args(text, &golden())).stderr(broken_pipe()).output().unwrap();
        assert_eq!((closed.status.code(), closed.stdout), (Some(code), plain.stdout), "{text}");
    }
}

#[test]
fn a_pipe_is_refused_where_a_file_is_mapped() {
    let scratch = folder("pipe");
    let pipe = scratch.file("pipe.gguf");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for text in ["inspect MODEL", "run MODEL --tokens 1"] {
        let output = nibble().args(args(text, &pipe)).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{text}: {}", stderr(&output));
        assert!(stderr(&output).contains("a pipe"), "{text}: {}", stderr(&output));
    }
}

#[test]
fn a_failed_command_leaves_no_output() {
    let scratch = folder("fails");
    let model = scratch.file("m.gguf");
    let out = scratch.file("out");
    fs::write(&out, "old").unwrap();
    for text in [
        "logits MODEL --tokens 99999 --out",
        "quantize MODEL --to nothing --force",
        "quantize MODEL --force",
        "quantize MODEL --to q4_0 --type q4_k_m --force",
        "quantize MODEL --to q4_0 --bits 3 --force",
        "quantize MODEL --to mlx --bits 3 --rules RULES --force",
    ] {
        let output = nibble().args(args(text, &model)).arg(&out).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}: {}", stderr(&output));
        assert_eq!(fs::read_to_string(&out).unwrap(), "old");
    }
    assert_eq!(scratch.names(), ["m.gguf", "out"]);
}

#[test]
fn a_path_need_not_be_text_but_a_prompt_must() {
    let scratch = folder("bytes");
    let model = scratch.file("x").with_file_name(std::ffi::OsStr::from_bytes(b"\xff\xfe.gguf"));
    if fs::copy(golden(), &model).is_err() {
        return eprintln!("SKIPPED: this file system takes only text for names");
    }
    for text in ["run MODEL --tokens 1,2 -n 2", "inspect MODEL", "logits MODEL --tokens 1 --json"] {
        let output = nibble().args(args(text, &model)).output().unwrap();
        assert!(output.status.success(), "{text}: {}", stderr(&output));
    }
    let prompt = std::ffi::OsStr::from_bytes(b"\xff\xfe");
    let output = nibble().arg("run").arg(golden()).arg(prompt).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn a_chat_template_fails_by_its_own_fault_or_by_the_messages() {
    let scratch = folder("template");
    let dir = scratch.file("model");
    fs::create_dir(&dir).unwrap();
    for entry in fs::read_dir(nibble_testkit::workspace_root().join("golden/models/llama")).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), dir.join(entry.file_name())).unwrap();
    }
    for (template, code, word) in [
        ("{% if %}", 3, "Jinja"),
        ("{{ messages | no_filter }}", 3, "no_filter"),
        ("{{ raise_exception('no system role') }}", 2, "no system role"),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", 5, "steps"),
    ] {
        fs::write(dir.join("chat_template.jinja"), template).unwrap();
        let output = nibble().args(args("run MODEL hi -n 1", &dir)).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{template}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "{template}: {}", stderr(&output));
    }
}

fn interrupt(child: &Child) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
}

#[test]
fn an_interrupt_ends_an_answer_with_its_summary() {
    let long = "run MODEL --tokens 1,2 --ctx 100000 -n 99999 --temp 0";
    let endless = nibble_testkit::workspace_root().join("golden/gguf/qwen2-f32.gguf");
    let mut child = nibble().args(args(long, &endless)).spawn().unwrap();
    let mut first = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut first).unwrap();
    interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("(interrupted)"), "{}", stderr(&output));
}

#[test]
fn an_interrupt_while_nothing_is_answered_ends_the_program() {
    let mut child = nibble().arg("chat").stdin(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.next().unwrap().unwrap().contains("/help"));
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"/help\n").unwrap();
    assert!(lines.any(|line| line.unwrap().contains("Ctrl-C stops an answer")));
    interrupt(&child);
    assert!(!child.wait().unwrap().success(), "the conversation is still open, so this was the signal");
    drop(stdin);
}

#[test]
fn saving_a_conversation_never_harms_the_model_in_use() {
    let scratch = folder("save");
    let model = scratch.file("story.gguf");
    fs::copy(nibble_testkit::workspace_root().join("assets/story.gguf"), &model).unwrap();
    let mut child = nibble().args(args("chat MODEL -n 3", &model)).stdin(Stdio::piped()).spawn().unwrap();
    let said = format!("hello\n/save {}\nhello\n/save /nowhere/x\n/save .\n/save\n", model.display());
    child.stdin.take().unwrap().write_all(said.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let saved: serde_json::Value = serde_json::from_reader(File::open(&model).unwrap()).unwrap();
    assert_eq!(saved.as_array().unwrap().len(), 2);
}

#[test]
fn a_broken_chat_template_leaves_plain_prompts_alone() {
    let dir = TempDir::new("hostile-plain");
    let golden = nibble_testkit::workspace_root().join("golden/models/llama");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(golden.join(file), dir.file(file)).unwrap();
    }
    fs::write(dir.file("chat_template.jinja"), "{% if %}").unwrap();
    let model = dir.file("");
    for text in ["run MODEL --tokens 1,2,3 --temp 0 -n 2", "inspect MODEL"] {
        let output = nibble().args(args(text, &model)).output().unwrap();
        assert!(output.status.success(), "{text}: {}", stderr(&output));
    }
    let output = nibble().args(args("chat MODEL", &model)).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}
