//! `quantize_to_mlx`: what it writes opens as the model it was made from, and what it cannot write is refused.

use nibble_api::{Error, Kind, MlxOptions, Registry, Summary, quantize_to_mlx};
use nibble_format::Checkpoint;
use nibble_quant::{
    Encoded,
    grouped::{Float, Grouped, Second},
};
use nibble_testkit::{TempDir, workspace_root};
use std::{
    fs,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

const OPTIONS: MlxOptions = MlxOptions { bits: 4, group: 32 };

fn model(name: &str) -> PathBuf {
    workspace_root().join("golden/models").join(name)
}

fn run(input: &Path, output: &Path, options: MlxOptions) -> Result<Summary, Error> {
    quantize_to_mlx(input, output, options, &Registry::default(), &mut |_| ControlFlow::Continue(()))
}

fn open(path: &Path) -> Checkpoint {
    nibble_format::open(path, &Registry::default()).unwrap()
}

fn bytes(tensor: &Encoded) -> Vec<u8> {
    tensor.parts().concat()
}

#[test]
fn a_directory_opens_as_the_model_it_was_made_from() {
    for name in [
        "llama",
        "mistral",
        "qwen2-sharded",
        "qwen3",
        "gemma2",
        "gemma3",
        "qwen3-moe",
        "qwen3-moe-mixed",
        "qwen3.5",
    ] {
        let folder = TempDir::new(&format!("mlx-{name}"));
        let output = folder.file("out");
        let summary = run(&model(name), &output, OPTIONS).unwrap();
        assert!(summary.warnings.is_empty(), "{name}: {:?}", summary.warnings);
        let (before, now) = (open(&model(name)), open(&output));
        assert_eq!(now.container, "mlx", "{name}");
        assert_eq!(before.metadata.values, now.metadata.values, "{name}");
        assert_eq!(
            before.tensors.keys().collect::<Vec<_>>(),
            now.tensors.keys().collect::<Vec<_>>(),
            "{name}"
        );
        assert!(now.unused.is_empty(), "{name}: {:?}", now.unused);
        let mut rounded = 0;
        for (tensor, before) in &before.tensors {
            let now = &now.tensors[tensor];
            let plain =
                before.shape().dims().len() < 2 || tensor.contains("router") || tensor.ends_with("conv");
            if plain {
                assert_eq!((now.name(), bytes(now)), (before.name(), bytes(before)), "{name}: {tensor}");
                continue;
            }
            rounded += 1;
            let float = match before.name() {
                "f32" => Float::F32,
                "f16" => Float::F16,
                _ => Float::Bf16,
            };
            let codec = Grouped::find(4, 32, Second::Bias, float).unwrap();
            let expected = Encoded::encode("t", before.shape(), codec, &before.decode(), None).unwrap();
            assert_eq!((now.name(), bytes(now)), (expected.name(), bytes(&expected)), "{name}: {tensor}");
        }
        assert!(rounded > 8, "{name}: {rounded}");
        assert!(output.join("tokenizer.json").is_file() && folder.names() == ["out"], "{name}");
    }
}

#[test]
fn rows_that_split_a_group_stay_as_they_are_and_are_told() {
    let folder = TempDir::new("mlx-rows");
    let summary = run(&model("llama"), &folder.file("out"), MlxOptions { bits: 8, group: 64 }).unwrap();
    assert!(summary.warnings[0].contains("no whole number of groups of 64"), "{:?}", summary.warnings);
    let written = open(&folder.file("out"));
    let names = ["embed", "layer.0.attn.q", "layer.0.ffn.down"].map(|name| written.tensors[name].name());
    assert_eq!(names, ["affine8_64_f16", "affine8_64_bf16", "bf16"]);
    let embed = summary.tensors.iter().find(|t| t.to == "affine8_64_f16").unwrap();
    assert!(embed.errors.rmse > 0.0 && embed.errors.cosine > 0.9999, "{embed:?}");

    let output = folder.file("experts");
    run(&model("qwen3-moe"), &output, MlxOptions { bits: 4, group: 64 }).unwrap();
    let (before, now) = (open(&model("qwen3-moe")), open(&output));
    let down = "layer.0.moe.down"; // rows of 32
    assert_eq!(bytes(&now.tensors[down]), bytes(&before.tensors[down]));
    assert_eq!(now.tensors["layer.0.moe.up"].name(), "affine4_64_f16");
}

#[test]
fn work_that_was_stopped_goes_on() {
    let folder = TempDir::new("mlx-stopped");
    let [output, fresh] = ["out", "fresh"].map(|name| folder.file(name));
    let mut calls = 0;
    let mut stop = |_: nibble_api::Progress<'_>| {
        calls += 1;
        if calls == 5 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let error =
        quantize_to_mlx(&model("qwen3"), &output, OPTIONS, &Registry::default(), &mut stop).unwrap_err();
    assert!(error.kind == Kind::Run && error.to_string().contains("4 of "), "{error}");
    assert_eq!(folder.names(), ["out.partial"]);
    assert_eq!(run(&model("qwen3"), &output, OPTIONS).unwrap().resumed, 4);
    run(&model("qwen3"), &fresh, OPTIONS).unwrap();
    let weights = |path: &Path| fs::read(path.join("model.safetensors")).unwrap();
    assert_eq!(weights(&output), weights(&fresh));
    assert_eq!(folder.names(), ["fresh", "out"]);
}

#[test]
fn what_makes_no_mlx_directory_is_refused() {
    let folder = TempDir::new("mlx-refused");
    let there = folder.file("there");
    fs::create_dir(&there).unwrap();
    let golden = workspace_root().join("golden");
    let out = folder.file("out");
    for (input, output, options, kind, says) in [
        (model("llama"), &out, MlxOptions { bits: 7, group: 64 }, Kind::Usage, "found 7 in groups of 64"),
        (model("llama"), &out, MlxOptions { bits: 4, group: 16 }, Kind::Usage, "found 4 in groups of 16"),
        (model("llama"), &there, OPTIONS, Kind::Usage, "exists already, and directories are not replaced"),
        (golden.join("gguf/llama-f32.gguf"), &out, OPTIONS, Kind::Load, "found `gguf`"),
        (golden.join("containers/mlx-4-64"), &out, OPTIONS, Kind::Load, "found `mlx`"),
        (model("bitnet"), &out, OPTIONS, Kind::Load, "found `bitnet`"),
        (
            model("llama"),
            &out,
            MlxOptions { bits: 4, group: 128 },
            Kind::Load,
            "no matrix has rows of whole groups of 128",
        ),
    ] {
        let error = run(&input, output, options).unwrap_err();
        assert_eq!(error.kind, kind, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(folder.names(), ["there"]);
    let foreign = folder.file("out.partial");
    fs::create_dir(&foreign).unwrap();
    fs::write(foreign.join("config.json"), "mine").unwrap();
    let error = run(&model("llama"), &out, OPTIONS).unwrap_err().to_string();
    assert!(error.contains("out.partial: is there already and not from an earlier run"), "{error}");
    assert_eq!(fs::read(foreign.join("config.json")).unwrap(), b"mine");
}
