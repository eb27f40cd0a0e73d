//! `nibble bench` from outside: what each output carries.

use nibble_testkit::TempDir;
use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// Small rows of every kind, in a moment.
const SMALL: &[&str] = &["-p", "24", "-g", "20", "-b", "1,2", "--depth", "0,16", "-r", "2", "--threads", "1"];

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nibble"));
    command.arg("bench").args(args).stdin(Stdio::null()).env("NO_COLOR", "1").output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn json_carries_identity_circumstances_and_every_row() {
    let output = bench(&[SMALL, &["--json"]].concat());
    let value: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let identity = &value["identity"];
    assert_eq!(identity["sha256"].as_str().unwrap().len(), 64);
    assert!(!identity["build"]["commit"].as_str().unwrap().is_empty() && identity["threads"] == 1);
    assert!(value["command"].as_str().unwrap().contains("bench -p 24"));
    assert_eq!((&value["repeats"], value["cold"].is_null()), (&2.into(), true));
    let rows = value["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6);
    for row in rows {
        let rate = &row["tokens_per_s"];
        assert!(rate["median"].as_f64().unwrap() > 0.0 && rate["repeats"] == 2, "{row}");
        assert_eq!(rate["interval"].as_array().unwrap().len(), 2, "{row}");
        let (case, share) = (&row["case"], row["share_of_limit"].as_f64().unwrap());
        assert!(share > 0.0 && row["bandwidth_around"].as_array().unwrap().len() == 2, "{row}");
        let filled = case["depth"].as_u64().unwrap() * case["batch"].as_u64().unwrap();
        assert_eq!(row["cached_tokens"].as_u64().unwrap(), filled, "{row}");
        assert_eq!((&row["drafted_tokens"], &row["accepted_tokens"]), (&0.into(), &0.into()));
        assert!(!cfg!(target_os = "linux") || row["footprint"]["peak"].as_u64().unwrap() > 1 << 20);
    }
}

#[test]
fn table_values_and_cold_takes() {
    let table = stdout(&bench(SMALL));
    for word in
        ["sha256", "commit", "warm-up", "95 %", "prompt 24 at 16", "generate 20 at 16 x 2", "GB/s memory"]
    {
        assert!(table.contains(word), "{word}: {table}");
    }
    let values = stdout(&bench(&["-p", "8", "-g", "0", "-r", "1", "--threads", "1", "--cold", "--csv"]));
    assert!(values.starts_with("row,side,") && values.lines().count() == 3, "{values}");
    let cold = stdout(&bench(&["-p", "4", "-g", "0", "-r", "1", "--threads", "1", "--cold"]));
    assert!(cold.contains("cold: caches swept with"), "{cold}");
}

#[test]
fn a_soak_says_what_it_did() {
    let value: serde_json::Value = serde_json::from_str(&stdout(&bench(&[
        "--soak",
        "100,2",
        "--device",
        "cpu",
        "--threads",
        "1",
        "--json",
    ])))
    .unwrap();
    assert_eq!((&value["soak"][0]["count"], &value["soak"][1]["count"]), (&100.into(), &2.into()));
}

#[test]
fn limits_alone_are_quick_to_read() {
    let text = stdout(&bench(&["--limits", "--threads", "1"]));
    assert_eq!(text.lines().count(), 2);
    assert!(text.contains("B/s") && text.contains("int8") && text.contains("f32"), "{text}");
    let value: serde_json::Value =
        serde_json::from_str(&stdout(&bench(&["--limits", "--threads", "1", "--json"]))).unwrap();
    assert!(value["limits"]["read_bytes_per_s"]["median"].as_f64().unwrap() > 0.0);
}

#[test]
fn who_cannot_be_measured_is_named() {
    let model = nibble_testkit::workspace_root().join("assets/story.gguf");
    let small = ["-p", "4", "-g", "0", "-r", "1", "--threads", "1"];
    let cases: [(&[&str], i32, &str); 6] = [
        (&["--against", "abacus"], 2, "abacus"),
        (&["--against", "llama.cpp"], 2, "built-in model"),
        (&[text(&model), "--against", "llama.cpp=/nowhere"], 2, "/nowhere"),
        (&[text(&model), "--against", "mlx-lm"], 2, "no ratio from different files"),
        (&["missing.gguf"], 3, "missing.gguf"),
        (&["-p", "0", "-g", "0"], 2, "rows"),
    ];
    for (args, code, word) in cases {
        let args = if args.contains(&"-p") { args.to_vec() } else { [args, &small].concat() };
        let output = bench(&args);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(word) && output.stdout.is_empty(), "{args:?}: {error}");
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_measured() {
    // So many takes would never end.
    let long = ["-p", "4", "-g", "0", "-r", "65536", "--threads", "1"];
    let cases: [(&[&str], i32, &str); 10] = [
        (&["--html", "/nowhere/page.html"], 5, "its folder is not there"),
        (&["--html", "."], 5, "found a folder"),
        (&["--gpu-modes", "--device", "cpu", "-g", "4", "-r", "65536"], 2, "one way of taking work"),
        (&["--soak", "10"], 2, "expected STEPS,TIMES"),
        (&["--gpu-modes", "--batch", "2"], 2, "cannot be used with"),
        (&["--limits", "--csv"], 2, "cannot be used with"),
        (&["--limits", "--html", "page.html"], 2, "cannot be used with"),
        (&["--warmup", "18446744073709551615"], 2, "up to 65536"),
        (&["-g", "20000000"], 2, "up to 16777216"),
        (&["--against", "llama.cpp", "--against-flags", "mlx-lm=x"], 2, "mlx-lm"),
    ];
    for (args, code, words) in cases {
        let twice = args.contains(&"-g");
        let output = bench(&[args, if twice { &[] } else { &long[..] }].concat());
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(words) && output.stdout.is_empty(), "{args:?}: {error}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_page_that_cannot_be_written_does_not_cost_the_table() {
    let output =
        bench(&["-p", "4", "-g", "0", "-r", "1", "--warmup", "0", "--threads", "1", "--html", "/dev/full"]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("prompt 4"), "measured all the same");
}

/// A program of that text in `scratch`.
#[cfg(unix)]
fn stand_in(scratch: &TempDir, script: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let program = scratch.file("llama-bench");
    std::fs::write(&program, script).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    program
}

#[cfg(unix)]
#[test]
fn no_ratio_at_all_is_a_failure_that_costs_no_figure() {
    let scratch = TempDir::new("bench-rubbish");
    let model = nibble_testkit::workspace_root().join("assets/story.gguf");
    let program = stand_in(&scratch, "#!/bin/sh\necho rubbish\n");
    let peer = format!("llama.cpp={}", program.display());
    let output =
        bench(&[text(&model), "-p", "4", "-g", "0", "-r", "1", "--threads", "1", "--against", &peer]);
    assert_eq!(output.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&output.stdout).contains("prompt 4"), "measured all the same");
    assert!(String::from_utf8_lossy(&output.stderr).contains("no row could be compared"));
}

#[cfg(unix)]
#[test]
fn a_peer_that_does_not_end_is_stopped_and_named() {
    let scratch = TempDir::new("bench-endless");
    let model = nibble_testkit::workspace_root().join("assets/story.gguf");
    let program = stand_in(&scratch, "#!/bin/sh\ncase $1 in --*) exit 0;; esac\nexec sleep 600\n");
    let peer = format!("llama.cpp={}", program.display());
    let args = [text(&model), "-p", "4", "-g", "0", "-r", "1", "--threads", "1", "--against", &peer];
    let output = bench(&[&args[..], &["--against-limit", "1"]].concat());
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("llama.cpp not measured") && said.contains("not done after 1 s"), "{said}");
}

/// A stand-in that answers as `llama-bench` does, so that the ratio is known to be made pair by pair.
#[cfg(unix)]
#[test]
fn a_peer_is_measured_in_turns_on_the_same_file() {
    let scratch = TempDir::new("bench-peer");
    let (model, log) = (scratch.file("m.gguf"), scratch.file("log"));
    std::fs::copy(nibble_testkit::workspace_root().join("assets/story.gguf"), &model).unwrap();
    let answer = format!(
        r#"[{{"build_commit":"abc","build_number":7,"model_filename":"{}","n_prompt":8,"n_gen":0,"n_depth":0,"avg_ns":8000000000}}]"#,
        model.display()
    );
    let script = format!("#!/bin/sh\necho \"$*\" >>'{}'\necho '{answer}'\n", log.display());
    let program = stand_in(&scratch, &script);
    let peer = format!("llama.cpp={}", program.display());
    let args =
        [text(&model), "-p", "8", "-g", "0", "-r", "3", "--threads", "1", "--json", "--against", &peer];
    let output = bench(&[&args[..], &["--against-flags", "llama.cpp=--repack 0"]].concat());
    let value: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    let row = &value["rows"][0];
    let against = &row["against"][0];
    assert_eq!(against["takes"], serde_json::json!([1.0, 1.0, 1.0]));
    assert_eq!(against["ratio"]["median"], row["tokens_per_s"]["median"], "they reach one token a second");
    assert_eq!(value["peers"][0]["version"], "abc (build 7)");
    let calls = std::fs::read_to_string(&log).unwrap();
    let calls: Vec<_> = calls.lines().filter(|call| call.contains("-p 8")).collect();
    assert_eq!(calls.len(), 3, "{calls:?}");
    assert!(
        calls.iter().all(|call| call.contains("-t 1") && call.ends_with("--repack 0 -o json -r 1 -p 8 -n 0")),
        "{calls:?}"
    );
}

#[test]
fn the_page_is_written_with_every_plot() {
    let scratch = TempDir::new("bench-page");
    let page = scratch.file("page.html");
    let rows = ["-p", "4", "-g", "2", "-r", "1", "--warmup", "0", "--threads", "1"];
    stdout(&bench(&[&rows[..], &["--html", text(&page)]].concat()));
    let html = std::fs::read_to_string(&page).unwrap();
    assert!(html.contains("id=\"report\"") && html.matches("<figure>").count() == 3, "{html}");
}
