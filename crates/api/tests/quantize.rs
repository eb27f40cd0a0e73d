//! `quantize`: what it writes, what it refuses, and that it leaves nothing behind.

use nibble_api::{Error, Kind, Note, QuantizeOptions, Registry, Summary, Target, quantize};
use nibble_format::{
    OpenOptions, Value,
    gguf::{self, Entry, GgufFile, ValueType, WriteTensor},
};
use nibble_quant::{CODECS, Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::{TempDir, shared_dir, uniform, workspace_root};
use std::{
    collections::HashMap,
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// The tensors of the small model that the tests write: name, shape, seed.
const TENSORS: &[(&str, &[usize], u64)] = &[
    ("token_embd.weight", &[24, 256], 1),
    ("blk.0.attn_norm.weight", &[256], 2),
    ("blk.0.attn_q.weight", &[64, 256], 3),
    ("blk.0.attn_q.bias", &[64], 4),
    ("blk.0.ffn_gate_inp.weight", &[4, 256], 5),
    ("blk.0.ffn_down_exps.weight", &[4, 8, 512], 6),
    ("blk.0.ssm_conv1d.weight", &[64, 4], 7),
    ("output.weight", &[24, 256], 8),
];

fn numbers(shape: &[usize], seed: u64) -> Vec<f32> {
    uniform(seed, shape.iter().product())
}

fn tensor(name: &str, shape: &[usize], encoding: &str, numbers: &[f32]) -> WriteTensor<'static> {
    let shape = Shape::new(shape).unwrap();
    let encoded = Encoded::encode(name, shape, codec(encoding), numbers, None).unwrap();
    WriteTensor::new(name, shape, codec(encoding), encoded.parts()[0].clone())
}

fn keys() -> Vec<Entry> {
    let odd = Entry { value_type: ValueType::U64, ..Entry::new("llama.block_count", 1u32) };
    vec![
        Entry::new("general.architecture", "llama"),
        odd,
        Entry::new("general.file_type", 0u32),
        Entry::new("general.alignment", 64u32),
        Entry::new("custom.list", vec!["a".to_owned(), "b".to_owned()]),
    ]
}

fn small_model(path: &Path) {
    let tensors =
        TENSORS.iter().map(|(name, shape, seed)| tensor(name, shape, "f32", &numbers(shape, *seed)));
    gguf::write(path, &keys(), tensors.collect()).unwrap();
}

fn options(to: &str) -> QuantizeOptions {
    QuantizeOptions::encoding(to)
}

fn run(input: &Path, output: &Path, options: &QuantizeOptions) -> Result<Summary, Error> {
    quantize(input, output, options, &Registry::default(), &mut |_| ControlFlow::Continue(()))
}

fn read(path: &Path) -> GgufFile {
    gguf::open_files(path, &Registry::default(), &OpenOptions::default()).unwrap().remove(0)
}

fn tensors(file: &GgufFile) -> HashMap<String, Encoded> {
    let encoded = |info| file.tensor(info, &Registry::default()).unwrap().unwrap();
    file.tensors.iter().map(|info| (info.name.clone(), encoded(info))).collect()
}

fn bytes(tensor: &Encoded) -> Vec<u8> {
    tensor.parts().concat()
}

/// The names of all encodings that files can be written in.
fn writable() -> Vec<&'static str> {
    let activations = ["q8_1", "q8_k", "f64"];
    let specs = CODECS.iter().filter(|c| c.encoder().is_some()).map(|c| c.spec());
    specs.filter(|s| s.gguf.is_some() && !activations.contains(&s.name)).map(|s| s.name).collect()
}

#[test]
fn every_encoding_is_written_as_its_codec_rounds() {
    let folder = TempDir::new("quantize-codecs");
    let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
    small_model(&input);
    for name in writable() {
        let summary = run(&input, &output, &QuantizeOptions { force: true, ..options(name) }).unwrap();
        let written = tensors(&read(&output));
        let spec = codec(name).spec();
        let few_bits = spec.block_bytes * 8 < spec.block_len * 6;
        for ((tensor, shape, seed), report) in TENSORS.iter().zip(&summary.tensors) {
            let matrix = ["attn_q.weight", "exps", "token_embd"].iter().any(|part| tensor.contains(part));
            let (to, note) = match *tensor {
                "output.weight" if few_bits => ("q6_k", Note::Head),
                "output.weight" => (name, Note::None),
                _ => (if matrix { name } else { "f32" }, Note::None),
            };
            let numbers = numbers(shape, *seed);
            let expected =
                Encoded::encode("t", Shape::new(shape).unwrap(), codec(to), &numbers, None).unwrap();
            assert_eq!(bytes(&written[*tensor]), bytes(&expected), "{name}: {tensor}");
            assert_eq!((report.name.as_str(), report.to, report.note), (*tensor, to, note), "{name}");
            let error = |(a, b): (&f32, f32)| (f64::from(*a) - f64::from(b)).powi(2);
            let squares: f64 = numbers.iter().zip(expected.decode()).map(error).sum();
            let rmse = (squares / numbers.len() as f64).sqrt();
            assert!(
                (report.errors.rmse - rmse).abs() <= 1e-9 * rmse,
                "{name}: {tensor}: {} {rmse}",
                report.errors.rmse
            );
        }
        assert_eq!(summary.bytes_before(), summary.weights() * 4);
        assert!(summary.warnings.is_empty(), "{name}: {:?}", summary.warnings);
        nibble_format::open(&output, &Registry::default()).unwrap();
    }
    assert_eq!(folder.names(), ["in.gguf", "out.gguf"]);
}

#[test]
fn keys_are_kept_as_they_are_but_for_what_changes() {
    let folder = TempDir::new("quantize-keys");
    let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
    small_model(&input);
    run(&input, &output, &options("q8_0")).unwrap();
    let mut expected = keys();
    expected.retain(|e| e.key != "general.file_type");
    expected.push(Entry::new("general.file_type", 7u32));
    expected.push(Entry::new("general.quantization_version", 2u32));
    assert_eq!(read(&output).entries, expected);
}

#[test]
fn shards_become_one_file() {
    let folder = TempDir::new("quantize-shards");
    for (index, half) in TENSORS.chunks(4).enumerate() {
        let mut entries = if index == 0 { keys() } else { vec![] };
        for (key, value) in [("no", index), ("count", 2), ("tensors.count", TENSORS.len())] {
            entries.push(Entry::new(format!("split.{key}"), value));
        }
        let tensors =
            half.iter().map(|(name, shape, seed)| tensor(name, shape, "f32", &numbers(shape, *seed)));
        let path = folder.file(&format!("m-{:05}-of-00002.gguf", index + 1));
        gguf::write(&path, &entries, tensors.collect()).unwrap();
    }
    let (first, second) = (folder.file("m-00001-of-00002.gguf"), folder.file("m-00002-of-00002.gguf"));
    let onto_a_shard = run(&first, &second, &QuantizeOptions { force: true, ..options("q8_0") }).unwrap_err();
    assert!(onto_a_shard.to_string().ends_with("is the input; choose another name for the output"));
    run(&first, &folder.file("whole.gguf"), &options("q8_0")).unwrap();
    small_model(&folder.file("in.gguf"));
    run(&folder.file("in.gguf"), &folder.file("same.gguf"), &options("q8_0")).unwrap();
    let bytes = |name| fs::read(folder.file(name)).unwrap();
    assert_eq!(bytes("whole.gguf"), bytes("same.gguf"));
}

#[test]
fn an_output_is_never_replaced_by_accident() {
    let folder = TempDir::new("quantize-replace");
    let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
    small_model(&input);
    fs::write(&output, "precious").unwrap();
    let force = QuantizeOptions { force: true, ..options("q8_0") };
    let roundabout = folder.path().join(".").join("in.gguf");
    for (output, options, says) in [
        (&output, options("q8_0"), "exists already; choose another name, or set `force`"),
        (&input, force.clone(), "is the input"),
        (&roundabout, force.clone(), "is the input"),
        (&folder.path().to_owned(), force.clone(), "found a directory"),
    ] {
        let error = run(&input, output, &options).unwrap_err();
        assert_eq!(error.kind, Kind::Usage, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(fs::read(&output).unwrap(), b"precious");
    run(&input, &output, &force).unwrap();
    assert_eq!(folder.names(), ["in.gguf", "out.gguf"]);
    assert_eq!(tensors(&read(&output)).len(), TENSORS.len());
    // Under this name the output stands until it is whole.
    let partial = folder.file("m.partial");
    fs::rename(&input, &partial).unwrap();
    let error = run(&partial, &folder.file("m"), &options("q8_0")).unwrap_err();
    assert!(error.kind == Kind::Usage && error.to_string().contains("is the input"), "{error}");
    assert_eq!(tensors(&read(&partial)).len(), TENSORS.len());
}

#[test]
fn a_damaged_input_leaves_no_output() {
    let folder = TempDir::new("quantize-damaged");
    let input = folder.file("in.gguf");
    small_model(&input);
    let whole = fs::read(&input).unwrap();
    let last_info = whole.windows(13).position(|w| w == b"output.weight").unwrap() + 13 + 4 + 16 + 4;
    let with_offset = |offset: u64| {
        let mut bytes = whole.clone();
        bytes[last_info..last_info + 8].copy_from_slice(&offset.to_le_bytes());
        bytes
    };
    let damaged = [
        whole[..whole.len() - 64].to_vec(),
        whole[..200].to_vec(),
        with_offset(whole.len() as u64),
        with_offset(u64::MAX - 31),
        b"GGUF".to_vec(),
        vec![],
    ];
    for bytes in damaged {
        fs::write(&input, &bytes).unwrap();
        let error = run(&input, &folder.file("out.gguf"), &options("q8_0")).unwrap_err();
        assert_eq!(error.kind, Kind::Load, "{error}");
        assert_eq!(folder.names(), ["in.gguf"]);
    }
}

#[test]
fn numbers_that_cannot_be_kept_are_refused() {
    let folder = TempDir::new("quantize-numbers");
    let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
    for (bad, to, kind, says) in [
        (f32::NAN, "q8_0", Kind::Load, "row 1 holds a number that is not finite"),
        (f32::INFINITY, "f32", Kind::Load, "row 1 holds a number that is not finite"),
        (1e6, "f16", Kind::Run, "row 1 holds a number too large"),
        (1e9, "q8_0", Kind::Run, "row 1 holds a number too large"),
    ] {
        let mut numbers = uniform(1, 3 * 32);
        numbers[40] = bad;
        let tensors = vec![
            tensor("a.weight", &[2, 32], "f32", &uniform(2, 64)),
            tensor("b.weight", &[3, 32], "f32", &numbers),
        ];
        gguf::write(&input, &keys(), tensors).unwrap();
        let error = run(&input, &output, &options(to)).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(
            error.to_string().starts_with("tensor `b.weight`") && error.to_string().contains(says),
            "{error}"
        );
        assert_eq!(folder.names(), ["in.gguf"], "{error}");
    }
}

/// Quantizes until `count` calls of progress, and says what it said and which tensors it got to.
fn stopped(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
    count: usize,
) -> (Error, Vec<(String, u64)>) {
    let mut seen = vec![];
    let mut stop = |now: nibble_api::Progress<'_>| {
        seen.push((now.tensor.to_owned(), now.done));
        if seen.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let error = quantize(input, output, options, &Registry::default(), &mut stop).unwrap_err();
    (error, seen)
}

#[test]
fn work_that_was_stopped_goes_on_and_ends_as_if_it_had_not_been() {
    let folder = TempDir::new("quantize-stopped");
    let [input, output, fresh] = ["in.gguf", "out.gguf", "fresh.gguf"].map(|name| folder.file(name));
    small_model(&input);
    let (error, seen) = stopped(&input, &output, &options("q8_0"), 3);
    assert_eq!(seen[2], ("blk.0.attn_q.weight".to_owned(), 24 * 256 + 256 + 64 * 256));
    assert_eq!(error.kind, Kind::Run);
    let says = "stopped at tensor `blk.0.attn_q.weight`; 2 of 8 tensors are finished and stay in ";
    assert!(error.to_string().starts_with(says), "{error}");
    assert_eq!(folder.names(), ["in.gguf", "out.gguf.partial", "out.gguf.partial.journal"]);
    let (_, seen) = stopped(&input, &output, &options("q8_0"), 5);
    assert_eq!(seen.last().unwrap().0, "blk.0.ffn_gate_inp.weight", "what is finished counts as progress");

    let whole = run(&input, &output, &options("q8_0")).unwrap();
    let expected = run(&input, &fresh, &options("q8_0")).unwrap();
    assert_eq!((whole.resumed, expected.resumed), (4, 0));
    assert_eq!(fs::read(&output).unwrap(), fs::read(&fresh).unwrap());
    let errors = |summary: Summary| summary.tensors.into_iter().map(|t| t.errors).collect::<Vec<_>>();
    assert_eq!(errors(whole), errors(expected));
    assert_eq!(folder.names(), ["fresh.gguf", "in.gguf", "out.gguf"]);
}

#[test]
fn what_is_finished_is_never_mixed_with_another_input_or_recipe() {
    let folder = TempDir::new("quantize-mixed-up");
    let [input, output, fresh] = ["in.gguf", "out.gguf", "fresh.gguf"].map(|name| folder.file(name));
    small_model(&input);
    let whole = fs::read(&input).unwrap();
    let mut changed = whole.clone();
    let first = whole.len() - TENSORS.iter().map(|(_, s, _)| s.iter().product::<usize>() * 4).sum::<usize>();
    changed[first + 2000] ^= 1; // in the embedding, in the name of the same file
    for (bytes, to, resumed) in [(&whole, "q8_0", 3), (&whole, "q4_k", 0), (&changed, "q8_0", 0)] {
        fs::write(&input, &whole).unwrap();
        stopped(&input, &output, &options("q8_0"), 4);
        fs::write(&input, bytes).unwrap();
        let force = QuantizeOptions { force: true, ..options(to) };
        assert_eq!(run(&input, &output, &force).unwrap().resumed, resumed, "{to}");
        run(&input, &fresh, &force).unwrap();
        assert_eq!(fs::read(&output).unwrap(), fs::read(&fresh).unwrap(), "{to}");
        fs::remove_file(&output).unwrap();
    }
    let weights = |sums: f32| {
        let sums = tensor(
            "token_embd.weight.in_sum2",
            &[1, 256],
            "f32",
            &(0..256).map(|i| sums + (i % 7) as f32).collect::<Vec<_>>(),
        );
        let counts = tensor("token_embd.weight.counts", &[1, 1], "f32", &[1.0]);
        gguf::write(&folder.file("weights"), &[Entry::new("general.type", "imatrix")], vec![sums, counts])
            .unwrap();
        QuantizeOptions { imatrix: Some(folder.file("weights")), ..options("q4_0") }
    };
    stopped(&input, &output, &weights(1.0), 4);
    assert_eq!(run(&input, &output, &weights(30.0)).unwrap().resumed, 0, "other column weights");
}

#[test]
fn what_is_quantized_already_is_copied_or_told() {
    let folder = TempDir::new("quantize-twice");
    let [f32, q8_0, again, q4_0] = ["f32", "q8_0", "again", "q4_0"].map(|name| folder.file(name));
    small_model(&f32);
    run(&f32, &q8_0, &options("q8_0")).unwrap();
    let copied = run(&q8_0, &again, &options("q8_0")).unwrap();
    assert_eq!(fs::read(&q8_0).unwrap(), fs::read(&again).unwrap());
    assert!(copied.warnings.is_empty() && copied.tensors.iter().any(|t| t.note == Note::Copied));
    let summary = run(&q8_0, &q4_0, &options("q4_0")).unwrap();
    assert!(summary.warnings[0].starts_with("4 tensors were quantized already"), "{:?}", summary.warnings);
    let q = summary.tensors.iter().find(|t| t.name == "blk.0.attn_q.weight").unwrap();
    assert_eq!((q.from, q.to, q.note), ("q8_0", "q4_0", Note::Requantized));
}

#[test]
fn rows_that_split_a_block_fall_back_and_are_told() {
    let folder = TempDir::new("quantize-fallback");
    let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
    let tensors = vec![
        tensor("a.weight", &[2, 96], "f32", &uniform(1, 192)),
        tensor("b.weight", &[2, 100], "f32", &uniform(2, 200)),
    ];
    gguf::write(&input, &keys(), tensors).unwrap();
    let summary = run(&input, &output, &options("q4_k")).unwrap();
    let got: Vec<_> = summary.tensors.iter().map(|t| (t.to, t.note)).collect();
    assert_eq!(got, [("q5_0", Note::Fallback), ("f16", Note::Fallback)]);
    assert!(summary.warnings[0].contains("2 tensors have rows"), "{:?}", summary.warnings);
    let (q8_0, twice) = (folder.file("q8_0.gguf"), folder.file("twice.gguf"));
    run(&input, &q8_0, &options("q8_0")).unwrap();
    let warnings = run(&q8_0, &twice, &options("q4_k")).unwrap().warnings;
    assert!(
        warnings[0].contains("1 tensors were quantized already")
            && warnings[1].contains("2 tensors have rows")
    );
}

#[test]
fn ternary_matrices_with_a_factor_stay_as_they_are() {
    let folder = TempDir::new("quantize-ternary");
    let (input, output) = (folder.file("in.gguf"), folder.file("out.gguf"));
    let tensors = vec![
        tensor("blk.0.attn_q.weight", &[2, 256], "tq2_0", &uniform(1, 512)),
        tensor("blk.0.attn_q.scale", &[1], "f32", &[0.25]),
        tensor("blk.0.attn_k.weight", &[2, 256], "f32", &uniform(2, 512)),
    ];
    gguf::write(&input, &keys(), tensors).unwrap();
    let summary = run(&input, &output, &options("q8_0")).unwrap();
    let got: Vec<_> = summary.tensors.iter().map(|t| (t.to, t.note)).collect();
    assert_eq!(got, [("tq2_0", Note::Copied), ("f32", Note::None), ("q8_0", Note::None)]);
    let (before, after) = (tensors_of(&input), tensors_of(&output));
    assert_eq!(bytes(&before["blk.0.attn_q.weight"]), bytes(&after["blk.0.attn_q.weight"]));
}

#[test]
fn ternary_matrices_change_their_encoding_without_a_change_of_numbers() {
    let folder = TempDir::new("quantize-ternary-exact");
    let output = folder.file("out.gguf");
    let model = workspace_root().join("golden/models/bitnet");
    for to in ["tq1_0", "tq2_0", "q2_0", "pq2_0", "ptq1_0"] {
        let summary = run(&model, &output, &QuantizeOptions { force: true, ..options(to) }).unwrap();
        let ternary: Vec<_> = summary.tensors.iter().filter(|t| t.from == "tq2_0").collect();
        assert!(ternary.len() == 7, "{to}: {} ternary matrices", ternary.len());
        for tensor in ternary {
            assert_eq!(
                (tensor.to, tensor.errors.max, tensor.errors.cosine),
                (to, 0.0, 1.0),
                "{}",
                tensor.name
            );
        }
        // Nothing is said of numbers that are rounded twice; the model's own settings are another matter.
        let of_settings = |warning: &String| warning.contains("other programs may not know these keys");
        assert!(summary.warnings.iter().all(of_settings), "{to}: {:?}", summary.warnings);
        nibble_format::open(&output, &Registry::default()).unwrap();
    }
}

fn tensors_of(path: &Path) -> HashMap<String, Encoded> {
    tensors(&read(path))
}

#[test]
fn column_weights_reach_the_rounding_of_each_matrix() {
    let folder = TempDir::new("quantize-imatrix");
    let [input, output, weights] = ["in.gguf", "out.gguf", "weights.gguf"].map(|name| folder.file(name));
    small_model(&input);
    let importance = |seed, n| uniform(seed, n).iter().map(|x| 4.0 * x * x + 0.01).collect::<Vec<f32>>();
    let (q, experts) = (importance(1, 256), importance(2, 4 * 512));
    let times = |list: &[f32], count: f32| list.iter().map(|x| x * count).collect::<Vec<f32>>();
    let sums = vec![
        tensor("blk.0.attn_q.weight.in_sum2", &[1, 256], "f32", &times(&q, 8.0)),
        tensor("blk.0.attn_q.weight.counts", &[1, 1], "f32", &[8.0]),
        tensor("blk.0.ffn_down_exps.weight.in_sum2", &[4, 512], "f32", &times(&experts, 2.0)),
        tensor("blk.0.ffn_down_exps.weight.counts", &[4, 1], "f32", &[2.0; 4]),
    ];
    gguf::write(&weights, &[Entry::new("general.type", "imatrix")], sums).unwrap();
    let with = QuantizeOptions { imatrix: Some(weights.clone()), force: true, ..options("q4_k") };
    let summary = run(&input, &output, &with).unwrap();
    assert!(summary.warnings[0].contains("no weights for 2 matrices"), "{:?}", summary.warnings);
    let written = tensors_of(&output);
    let encode = |shape: &[usize], numbers: &[f32], weights: Option<&[f32]>| {
        let shape = Shape::new(shape).unwrap();
        bytes(&Encoded::encode("t", shape, codec("q4_k"), numbers, weights).unwrap())
    };
    let numbers_q = numbers(&[64, 256], 3);
    assert_eq!(bytes(&written["blk.0.attn_q.weight"]), encode(&[64, 256], &numbers_q, Some(&q)));
    assert_ne!(bytes(&written["blk.0.attn_q.weight"]), encode(&[64, 256], &numbers_q, None));
    let all = numbers(&[4, 8, 512], 6);
    let by_expert = all.chunks(8 * 512).zip(experts.chunks(512));
    let expected: Vec<u8> = by_expert.flat_map(|(n, w)| encode(&[8, 512], n, Some(w))).collect();
    assert_eq!(bytes(&written["blk.0.ffn_down_exps.weight"]), expected);

    let zeros = vec![
        tensor("blk.0.attn_q.weight.in_sum2", &[1, 256], "f32", &[0.0; 256]),
        tensor("blk.0.attn_q.weight.counts", &[1, 1], "f32", &[8.0]),
    ];
    let dead = folder.file("dead.gguf");
    gguf::write(&dead, &[Entry::new("general.type", "imatrix")], zeros).unwrap();
    for name in writable() {
        let with_zeros = QuantizeOptions { imatrix: Some(dead.clone()), force: true, ..options(name) };
        run(&input, &output, &with_zeros).unwrap(); // numbers that are not finite would be refused
    }

    let blind =
        run(&input, &output, &QuantizeOptions { to: Target::Encoding("q8_0".into()), ..with.clone() })
            .unwrap();
    assert!(blind.warnings[0].contains("has no effect"), "{:?}", blind.warnings);
    let not_one = QuantizeOptions { imatrix: Some(input.clone()), ..with };
    let error = run(&input, &output, &not_one).unwrap_err();
    assert!(error.kind == Kind::Load && error.to_string().contains("expected `imatrix`"), "{error}");
}

#[test]
fn a_file_type_mixes_encodings_and_rules_go_first() {
    let folder = TempDir::new("quantize-mixed");
    let [input, output, rules] = ["in.gguf", "out.gguf", "rules.txt"].map(|name| folder.file(name));
    let mut entries = keys();
    entries[1] = Entry::new("llama.block_count", 8u32);
    let names = (0..8).flat_map(|n| ["attn_q", "attn_v"].map(|part| format!("blk.{n}.{part}.weight")));
    let tensors = names.map(|name| tensor(&name, &[2, 256], "f16", &uniform(1, 512)));
    gguf::write(&input, &entries, tensors.collect()).unwrap();
    fs::write(&rules, "# the last layer\nblk\\.7\\. = bf16\nattn_q = q5_0\n").unwrap();
    let mixed =
        QuantizeOptions { to: Target::FileType("Q4_K_M".into()), rules: Some(rules.clone()), ..options("") };
    let summary = run(&input, &output, &mixed).unwrap();
    let written = tensors_of(&output);
    for report in &summary.tensors {
        let (to, note) = match report.name.as_str() {
            name if name.starts_with("blk.7.") => ("bf16", Note::Rule),
            name if name.contains("attn_q") => ("q5_0", Note::Rule),
            // The first eighth and every third one; the last eighth has its own rule.
            "blk.0.attn_v.weight" | "blk.3.attn_v.weight" | "blk.6.attn_v.weight" => ("q6_k", Note::Mixed),
            _ => ("q4_k", Note::None),
        };
        assert_eq!((written[&report.name].name(), report.note), (to, note), "{}", report.name);
    }
    assert!(matches!(read(&output).get("general.file_type"), Some(Value::Int(15))));

    fs::write(&rules, "attn_v = q8_0\nattn_norm = q8_0\n").unwrap();
    let error = run(&input, &folder.file("none.gguf"), &mixed).unwrap_err();
    assert_eq!(error.kind, Kind::Usage);
    assert!(
        error.to_string().ends_with("line 2: pattern `attn_norm` matches no matrix of the model"),
        "{error}"
    );
    assert_eq!(folder.names(), ["in.gguf", "out.gguf", "rules.txt"]);
}

/// The names of the models in `golden/gguf`, which llama.cpp's own converter made, and their encodings. Not those that were
/// packed before: the converter leaves what is packed as it is.
fn converted() -> Vec<(PathBuf, PathBuf, String)> {
    let golden = workspace_root().join("golden");
    let mut found = vec![];
    for file in fs::read_dir(golden.join("gguf")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let Some((model, encoding)) = name.strip_suffix(".gguf").and_then(|stem| stem.rsplit_once('-'))
        else {
            continue;
        };
        let config = fs::read_to_string(golden.join("models").join(model).join("config.json")).unwrap();
        let packed = config.contains("quantization_config");
        if ["f32", "f16", "bf16"].contains(&encoding) && !packed {
            found.push((golden.join("models").join(model), path, encoding.to_owned()));
        }
    }
    assert!(found.len() >= 5, "golden/gguf holds converted models");
    found
}

#[test]
fn checkpoints_become_what_the_converter_of_llama_cpp_makes_of_them() {
    // Descriptions, a default, and what other keys say.
    let unneeded = ["general.name", "general.size_label", "tokenizer.ggml.add_space_prefix"];
    let folder = TempDir::new("quantize-converter");
    let output = folder.file("out.gguf");
    for (model, path, encoding) in converted() {
        let summary = run(&model, &output, &QuantizeOptions { force: true, ..options(&encoding) }).unwrap();
        assert!(summary.warnings.is_empty(), "{:?}", summary.warnings);
        let (ours, theirs) = (read(&output), read(&path));
        for entry in &theirs.entries {
            if unneeded.contains(&entry.key.as_str()) || entry.key.ends_with(".attention.recurrent_layers") {
                continue;
            }
            let own = ours.entries.iter().find(|e| e.key == entry.key);
            assert_eq!(own, Some(entry), "{}", path.display());
        }
        let (ours, theirs) = (tensors(&ours), tensors(&theirs));
        assert_eq!(ours.len(), theirs.len(), "{}", path.display());
        for (name, theirs) in &theirs {
            let ours = &ours[name];
            assert_eq!(ours.name(), theirs.name(), "{}: {name}", path.display());
            if name == "rope_freqs.weight" {
                // Computed by us in f64 and by them in f32.
                let near = |(a, b): (&f32, &f32)| (a - b).abs() <= 1e-5 * b.abs();
                assert!(ours.decode().iter().zip(&theirs.decode()).all(near), "{}", path.display());
            } else {
                assert_eq!(bytes(ours), bytes(theirs), "{}: {name}", path.display());
            }
        }
    }
}

#[test]
fn the_story_model_is_what_its_note_says() {
    let story = workspace_root().join("assets/story.gguf");
    assert!(fs::metadata(&story).unwrap().len() <= 8_000_000);
    let file = read(&story);
    assert!(matches!(file.get("tokenizer.chat_template"), Some(Value::Text(t)) if t.contains("im_start")));
    let Some(shared) = shared_dir() else { return };
    let folder = TempDir::new("quantize-story");
    run(&shared.join("tiny/tiny-llama"), &folder.file("story.gguf"), &options("q8_0")).unwrap();
    let same = fs::read(folder.file("story.gguf")).unwrap() == fs::read(&story).unwrap();
    assert!(same, "the command in assets/README.md makes another file than assets/story.gguf");
}
