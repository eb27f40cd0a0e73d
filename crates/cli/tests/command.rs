//! The command from outside: what goes to which stream, and exit codes.

use nibble_testkit::TempDir;
use std::{
    path::PathBuf,
    process::{Command, Output, Stdio},
};

fn nibble(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nibble"));
    command.args(args).stdin(Stdio::null()).env("NO_COLOR", "1").output().unwrap()
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn golden(name: &str) -> String {
    let path = nibble_testkit::workspace_root().join("golden").join(name);
    assert!(path.exists(), "{} is part of the repository", path.display());
    text(path)
}

fn text(path: PathBuf) -> String {
    path.to_string_lossy().into_owned()
}

fn json(output: &Output) -> serde_json::Value {
    serde_json::from_str(&stdout(output)).unwrap()
}

#[test]
fn run_without_a_model_tells_a_story_on_stdout_and_figures_on_stderr() {
    let output = nibble(&["run", "--temp", "0", "-n", "40"]);
    let text = stdout(&output);
    assert!(text.split_whitespace().count() > 20, "{text}");
    assert!(text.contains("fox"), "{text}");
    assert!(!text.contains("tok/s") && stderr(&output).contains("tok/s"));
    assert!(!stderr(&output).contains('\x1b'), "no colours where nobody looks");
}

#[test]
fn one_answer_for_every_thread_count_and_chunk() {
    let run = |extra: &[&str]| {
        let base = ["run", "Tell me a story about a small owl.", "--temp", "0", "-n", "60"];
        stdout(&nibble(&[&base[..], extra].concat()))
    };
    let plain = run(&[]);
    for extra in [&["--threads", "1"][..], &["--threads", "2"], &["--threads", "3", "--prefill-chunk", "1"]] {
        assert_eq!(run(extra), plain, "{extra:?}");
    }
    for chunk in ["7", "64", "512"] {
        assert_eq!(run(&["--prefill-chunk", chunk]), plain, "chunk {chunk}");
    }
}

#[test]
fn json_holds_tokens_and_timings_and_nothing_else_is_on_stdout() {
    let output = nibble(&["run", "Tell me a story about a bear.", "--seed", "5", "-n", "10", "--json"]);
    let value = json(&output);
    assert_eq!(value["tokens"].as_array().unwrap().len(), 10);
    assert_eq!((&value["finish_reason"], &value["seed"]), (&"length".into(), &5.into()));
    assert!(value["prompt_tokens"].as_u64().unwrap() > 5);
    assert!(value["timings"]["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
    assert!(!value["text"].as_str().unwrap().is_empty());
}

#[test]
fn tokens_are_a_prompt_and_stop_strings_end_the_answer() {
    let free = json(&nibble(&["run", "--tokens", "472", "--temp", "0", "-n", "30", "--json"]));
    let text = free["text"].as_str().unwrap().to_owned();
    let word = text.split_whitespace().nth(6).unwrap();
    let cut = json(&nibble(&["run", "--tokens", "472", "--temp", "0", "-n", "30", "--json", "--stop", word]));
    assert_eq!(cut["finish_reason"], "stop");
    assert_eq!(cut["text"].as_str().unwrap(), &text[..text.find(word).unwrap()]);
}

#[test]
fn exit_codes_say_what_kind_of_failure_it_was() {
    let scratch = TempDir::new("command-codes");
    let broken = text(scratch.file("broken.gguf"));
    std::fs::write(&broken, b"GGUF\x03\0\0\0not a model").unwrap();
    let model = golden("gguf/llama-f32.gguf");
    let cases: [(&[&str], i32, &str); 7] = [
        (&["run", "--temp", "hot"], 2, "hot"),
        (&["run", "x", "--device", "abacus"], 2, "abacus"),
        (&["run", "x", "--temp", "-1"], 2, "temperature"),
        (&["run", "missing.gguf", "x"], 3, "missing.gguf"),
        (&["run", &broken, "x"], 3, "broken.gguf"),
        (&["run", "a story", "--ctx", "4"], 4, "but the context holds 4; shorten it or raise --ctx"),
        (&["run", &model, "--tokens", "1,2", "--memory-budget", "1K"], 4, "available; lower --ctx"),
    ];
    for (args, code, word) in cases {
        let output = nibble(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(word), "{args:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty(), "{args:?}");
    }
}

#[test]
fn inspect_knows_encodings_memory_and_the_graph() {
    let model = golden("gguf/llama-f32.gguf");
    let value = json(&nibble(&["inspect", &model, "--json", "--tensors"]));
    assert_eq!((&value["container"], &value["architecture"]), (&"gguf".into(), &"llama".into()));
    assert!(value["tensors"].as_array().unwrap().len() > 10);
    assert!(value["memory"]["kv_bytes"].as_u64().unwrap() > 0);
    let page = stdout(&nibble(&["inspect"]));
    assert!(page.contains("bits a weight") && page.contains("llama"), "{page}");
    let graph = stdout(&nibble(&["inspect", &model, "--graph"]));
    assert!(graph.contains("layer 0") && graph.contains("attention"), "{graph}");
}

#[test]
fn inspect_knows_every_packed_directory_and_what_is_missing_in_a_broken_one() {
    // Bits a weight with all that stands beside, and as a GPU keeps the matrix.
    for (folder, container, kind, bits, on_gpu) in [
        ("mlx-4-64", "mlx", "ffn.down", 4.5, 5.0),
        ("gptq-4-order", "gptq", "attn.q", 5.25, 5.0),
        ("awq", "awq", "attn.o", 4.5, 5.0),
        ("ct-int4", "compressed-tensors", "ffn.up", 4.25, 5.0),
        ("fp8-blocks", "fp8", "ffn.up", 8.25, 8.25),
        ("bitnet", "bitnet", "ffn.up", 2.25, 2.5),
        ("modelopt-nvfp4", "modelopt", "ffn.up", 4.5, 5.0),
        ("exl2-mixed", "exl2", "attn.k", 6.0, 5.75),
        ("exl3-2-mul1", "exl3", "attn.q", 2.6, 2.0),
    ] {
        let value = json(&nibble(&["inspect", &golden(&format!("containers/{folder}")), "--json"]));
        assert_eq!(value["container"], container, "{folder}");
        let found = value["kinds"][kind]["bits_per_weight"].as_f64().unwrap();
        assert!((found - bits).abs() < 0.2, "{folder}: {kind} has {found} bits");
        let found = value["kinds"][kind]["gpu"]["bits_per_weight"].as_f64().unwrap();
        assert!((found - on_gpu).abs() < 0.01, "{folder}: {kind} has {found} bits on a GPU");
        let own = value["memory"]["own_weights"].as_u64().unwrap();
        assert!(own > 10_000, "{folder}: what is written anew counts as own memory");
    }
    let scratch = TempDir::new("command-broken");
    for file in ["config.json", "model.safetensors"] {
        let from = PathBuf::from(golden("containers/awq")).join(file);
        std::fs::copy(from, scratch.file(file)).unwrap();
    }
    std::fs::remove_file(scratch.file("model.safetensors")).unwrap();
    let output = nibble(&["inspect", &text(scratch.path().to_owned())]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3));
    assert!(message.contains("expected model.safetensors"), "{message}");
}

#[test]
fn inspect_lists_all_that_is_wrong_where_other_commands_say_the_first() {
    let scratch = TempDir::new("command-broken-list");
    let config = std::fs::read_to_string(golden("containers/awq/config.json")).unwrap();
    let file = std::fs::read(golden("containers/awq/model.safetensors")).unwrap();
    // Names of the same length, so that the header stays as long.
    let mut renamed = file.clone();
    for (from, to) in [("mlp.up_proj.qzeros", "mlp.up_proj.qxeros"), ("input_layernorm", "inputXlayernorm")] {
        let at = renamed.windows(from.len()).position(|bytes| bytes == from.as_bytes()).unwrap();
        renamed[at..at + to.len()].copy_from_slice(to.as_bytes());
    }
    scratch.write("config.json", config.replace("\"intermediate_size\": 256", "\"intermediate_size\": 512"));
    scratch.write("model.safetensors", renamed);
    let model = text(scratch.path().to_owned());
    let output = nibble(&["inspect", &model]);
    let message = stderr(&output);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(3), 0), "{message}");
    let lines: Vec<_> = message.lines().collect();
    assert!(lines[0].contains(&model) && lines[0].ends_with("for 6 reasons:"), "{message}");
    assert_eq!(lines.len(), 7, "{message}");
    for (word, what) in [
        ("up_proj.qzeros", "found nothing"),
        ("`layer.0.attn.norm`", "is missing"),
        ("`layer.0.ffn.gate`", "expected shape [512, 128], found [256, 128]"),
        ("`layer.0.ffn.down`", "expected shape [128, 512], found [128, 256]"),
        ("qxeros", "has no place"),
        ("inputXlayernorm", "has no place"),
    ] {
        let found = lines.iter().filter(|line| line.contains(word) && line.contains(what)).count();
        assert_eq!(found, 1, "{word} {what}: {message}");
    }
    let run = nibble(&["run", &model, "--tokens", "1"]);
    assert_eq!((run.status.code(), stderr(&run).lines().count()), (Some(3), 1), "{}", stderr(&run));
}

#[test]
fn logits_agree_between_json_and_safetensors_and_with_chunks() {
    let scratch = TempDir::new("command-logits");
    let (model, file) = (golden("gguf/llama-f32.gguf"), text(scratch.file("l.safetensors")));
    let ids = "1,2,3,4,5,6,7,8,9";
    let base = ["logits", &model, "--tokens", ids, "--activations", "f32", "--kv", "f32"];
    let value = json(&nibble(&[&base[..], &["--json", "--top", "3", "--out", &file]].concat()));
    let top = value["top"].as_array().unwrap();
    assert_eq!((top.len(), top[0].as_array().unwrap().len()), (9, 3));
    let bytes = std::fs::read(&file).unwrap();
    let header_len = u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    let header: serde_json::Value = serde_json::from_slice(&bytes[8..8 + header_len]).unwrap();
    let shape = header["logits"]["shape"].as_array().unwrap();
    let vocab = shape[1].as_u64().unwrap() as usize;
    assert_eq!(bytes.len(), 8 + header_len + 9 * vocab * 4);
    assert_eq!(header["__metadata__"]["tokens"], "1,2,3,4,5,6,7,8,9");
    let parity = nibble(&["parity", &model, "--exact", "--against", &file]);
    assert!(stdout(&parity).contains("PASS"));
    let id = top[8][0][0].as_u64().unwrap() as usize;
    let at = 8 + header_len + (8 * vocab + id) * 4;
    let stored = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    assert!((f64::from(stored) - top[8][0][1].as_f64().unwrap()).abs() < 1e-6);
    for chunk in ["1", "4"] {
        let other = json(&nibble(&[&base[..], &["--json", "--top", "3", "--prefill-chunk", chunk]].concat()));
        assert_eq!(other, value);
    }
}

#[test]
fn tokenize_goes_both_ways() {
    let scratch = TempDir::new("command-tokenize");
    let model = text(scratch.file("story.gguf"));
    std::fs::copy(nibble_testkit::workspace_root().join("assets/story.gguf"), &model).unwrap();
    let text = "Once upon a time, ein Füchslein 🦊";
    let ids = stdout(&nibble(&["tokenize", &model, text]));
    let back = stdout(&nibble(&["tokenize", &model, "--decode", ids.trim()]));
    assert_eq!(back.trim_end_matches('\n'), text);
    let value = json(&nibble(&["tokenize", &model, text, "--json"]));
    assert_eq!(value["tokens"].as_array().unwrap().len(), value["pieces"].as_array().unwrap().len());
}

#[test]
fn parity_prints_a_verdict_and_fails_with_its_reason() {
    let model = golden("gguf/llama-q8_0.gguf");
    let base = ["parity", &model, "--limit", "4", "-n", "3"];
    let page = stdout(&nibble(&base));
    for word in ["verdict        PASS", "frameworks     0 foreign", "golden file", "sha256", "part"] {
        assert!(page.contains(word), "{word}: {page}");
    }
    let value = json(&nibble(&[&base[..], &["--exact", "--json"]].concat()));
    assert_eq!((&value["verdict"], &value["exact"]), (&"PASS".into(), &true.into()));
    assert!(value["positions"].as_u64().unwrap() > 20 && value["layers"]["values"].as_u64().unwrap() > 10);
    let failed = nibble(&[&base[..], &["--bounds", "top1=2"]].concat());
    assert_eq!(failed.status.code(), Some(5));
    assert!(stderr(&failed).contains("FAIL: top-1 agreement"), "{}", stderr(&failed));
    for wrong in [&["--bounds", "luck=1"][..], &["--against", "abacus"], &["--prompts", "no-such-file"]] {
        assert_eq!(nibble(&[&base[..], wrong].concat()).status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_record_is_kept_and_compared_with() {
    let scratch = TempDir::new("command-record");
    let (model, record) = (golden("gguf/qwen2-f32.gguf"), text(scratch.file("r.safetensors")));
    let base = ["parity", &model, "--limit", "5", "-n", "4"];
    let written = nibble(&[&base[..], &["--record", &record]].concat());
    assert!(written.status.success() && written.stdout.is_empty(), "{}", stderr(&written));
    let page = stdout(&nibble(&["parity", &model, "--exact", "--against", &record]));
    assert!(page.contains("record of reference") && page.contains("0 part"), "{page}");
    let other = nibble(&["parity", &golden("models/qwen2"), "--exact", "--against", &record]);
    assert!(!stdout(&other).contains("FAIL"), "the same weights in another container");
}

#[test]
fn same_answer_prints_a_matrix() {
    let page = stdout(&nibble(&["parity", &golden("gguf/llama-q8_0.gguf"), "--same-answer", "-n", "4"]));
    assert!(page.contains("threads 1, chunk 7") && page.contains("neighbours 3, cache hit"), "{page}");
    assert!(page.matches(" same ").count() >= 32, "{page}");
}

#[test]
fn same_answer_takes_any_length_and_no_answer_is_not_the_same() {
    let model = golden("gguf/llama-f32.gguf");
    for more in [["-n", "18446744073709551615"], ["--ctx", "1"]] {
        let page = stdout(&nibble(&[&["parity", &model, "--same-answer"][..], &more].concat()));
        assert!(page.matches(" same ").count() >= 32, "{page}");
    }
    let scratch = TempDir::new("command-not-finite");
    let broken = text(scratch.file("nan.gguf"));
    let mut bytes = std::fs::read(&model).unwrap();
    let last = bytes.len() - 4; // of the last norm's weights
    bytes[last..].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&broken, bytes).unwrap();
    let output = nibble(&["parity", &broken, "--same-answer", "-n", "2"]);
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    assert!(stderr(&output).contains("--check-finite") && output.stdout.is_empty(), "{}", stderr(&output));
    for temperature in ["0", "1"] {
        let output = nibble(&["run", &broken, "--tokens", "5,6", "--temp", temperature]);
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        assert!(
            stderr(&output).contains("position 1: logits: expected numbers, found NaN"),
            "{}",
            stderr(&output)
        );
        assert!(
            stderr(&output).contains("--check-finite") && output.stdout.is_empty(),
            "{}",
            stderr(&output)
        );
    }
    let record = text(scratch.file("r.safetensors"));
    for continuation in ["2", "0"] {
        let args = ["parity", &broken, "--limit", "2", "-n", continuation, "--record", &record];
        let output = nibble(&args);
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        assert!(stderr(&output).contains("NaN") && !PathBuf::from(&record).exists(), "{}", stderr(&output));
    }
}

#[test]
fn perplexity_is_measured_kept_and_compared() {
    let scratch = TempDir::new("command-perplexity");
    let [kept, book] = ["kept", "book.txt"].map(|name| text(scratch.file(name)));
    std::fs::write(&book, "The tide was out, and the boats lay on their sides. ".repeat(8)).unwrap();
    let full = golden("gguf/llama-f32.gguf");
    let base = ["perplexity", &full, "--text", &book, "--ctx", "64", "--activations", "f32"];
    let value = json(&nibble(&[&base[..], &["--json", "--save-logits", &kept]].concat()));
    assert!(value["perplexity"].as_f64().unwrap() > 1.0 && value["error"].as_f64().unwrap() > 0.0);
    let page = stdout(&nibble(&["perplexity", &golden("gguf/llama-q8_0.gguf"), "--kl", &kept]));
    assert!(page.contains("mean KL, nats") && page.contains("KL, 99.9 %"), "{page}");
    let other = nibble(&["perplexity", &full, "--kl", &kept, "--ctx", "32"]);
    assert_eq!(other.status.code(), Some(2));
    assert!(stderr(&other).contains("context"), "{}", stderr(&other));
    let story = text(nibble_testkit::workspace_root().join("assets/story.gguf"));
    let other = nibble(&["perplexity", &story, "--kl", &kept]);
    assert!(stderr(&other).contains("vocabulary"), "{}", stderr(&other));
    let short = nibble(&["perplexity", &full, "--text", &book, "--ctx", "4096"]);
    assert_eq!(short.status.code(), Some(2), "{}", stderr(&short));
}

#[test]
fn no_output_takes_the_place_of_the_model() {
    let scratch = TempDir::new("command-output");
    let [model, book] = ["m.gguf", "book.txt"].map(|name| text(scratch.file(name)));
    std::fs::copy(golden("gguf/llama-f32.gguf"), &model).unwrap();
    std::fs::write(&book, "The tide was out. ".repeat(40)).unwrap();
    let before = std::fs::read(&model).unwrap();
    for args in [
        &["logits", &model, "--tokens", "1,2", "--out", &model][..],
        &["perplexity", &model, "--text", &book, "--ctx", "64", "--save-logits", &model],
        &["parity", &model, "--record", &model],
        &["bench", &model, "--html", &model],
    ] {
        let output = nibble(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert!(stderr(&output).contains("is the model that is read"), "{}", stderr(&output));
        assert_eq!(std::fs::read(&model).unwrap(), before, "{args:?}");
    }
}
