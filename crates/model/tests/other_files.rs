//! Golden models written anew: what other files hold of the same model must mean the same.

use nibble_backend::{Backend, KvType};
use nibble_backend_reference::Reference;
use nibble_format::Checkpoint;
use nibble_quant::{Encoded, Registry, codec};
use nibble_testkit::{
    TempDir,
    gguf::Builder,
    golden::{self, TOLERANCE},
    runner::{Runner, limits},
    workspace_root,
};
use serde_json::{Value as Json, json};
use std::path::PathBuf;

fn golden_model(name: &str) -> (PathBuf, Checkpoint) {
    let path = workspace_root().join("golden/models").join(name);
    let checkpoint = nibble_format::open(&path, &Registry::default()).unwrap();
    (path, checkpoint)
}

/// Checks the logits of the three shorter prompts.
fn check(name: &str, checkpoint: &Checkpoint) {
    let model = nibble_model::build(checkpoint).unwrap();
    let prompts = golden::read(&workspace_root().join("golden/models").join(name).join("golden.json"));
    let plan = Reference.compile(&model.graph, &limits(64, 64, KvType::F32)).unwrap();
    let mut runner = Runner::new(plan, model.config.vocab);
    for prompt in prompts.iter().filter(|p| p.ids.len() <= 40) {
        prompt.check(&mut runner, TOLERANCE);
    }
}

/// A ternary matrix and its factor.
struct Ternary {
    rows: usize,
    row_len: usize,
    numbers: Vec<f32>,
    factor: f32,
}

impl Ternary {
    /// `i2_s`, whose factor follows the codes.
    fn i2_s(&self) -> Vec<u8> {
        let codes = self.numbers.chunks(128).flat_map(|block| {
            let code = |i: usize| (block[i] + 1.0) as u8;
            (0..32).map(move |g| code(g) << 6 | code(g + 32) << 4 | code(g + 64) << 2 | code(g + 96))
        });
        codes.chain(self.factor.to_le_bytes()).chain([0; 28]).collect()
    }

    /// Blocks that hold their scale.
    fn blocks(&self, name: &str) -> Vec<u8> {
        let codec = codec(name);
        let row_bytes = self.row_len / codec.spec().block_len * codec.spec().block_bytes;
        let mut bytes = vec![0; self.rows * row_bytes];
        for (row, out) in self.numbers.chunks(self.row_len).zip(bytes.chunks_mut(row_bytes)) {
            let scaled: Vec<f32> = row.iter().map(|t| t * self.factor).collect();
            codec.encoder().unwrap().encode_row(&scaled, None, out);
        }
        bytes
    }
}

/// The golden BitNet model as a GGUF file; `ternary` writes a matrix and says its tensor type.
fn bitnet_gguf(source: &Checkpoint, ternary: impl Fn(&Ternary) -> (u32, Vec<u8>)) -> Vec<u8> {
    let architecture = "bitnet-b1.58";
    let mut b = Builder::new();
    b.text("general.architecture", architecture);
    for (key, value) in [
        ("block_count", 1),
        ("context_length", 128),
        ("embedding_length", 256),
        ("feed_forward_length", 256),
        ("attention.head_count", 4),
        ("attention.head_count_kv", 2),
        ("vocab_size", 288),
    ] {
        b.u32(&format!("{architecture}.{key}"), value);
    }
    for (key, value) in [("attention.layer_norm_rms_epsilon", 1e-5f32), ("rope.freq_base", 1e4)] {
        b.entry(format!("{architecture}.{key}").as_bytes(), 6, &value.to_le_bytes());
    }
    for (name, tensor) in source.tensors.iter().filter(|(name, _)| !name.ends_with(".scale")) {
        let name_there = nibble_format::gguf_name(name, architecture).unwrap();
        let dims: Vec<u64> = tensor.shape().dims().iter().rev().map(|&d| d as u64).collect();
        let (type_id, bytes) = match source.tensors.get(&format!("{name}.scale")) {
            Some(factor) => ternary(&Ternary {
                rows: tensor.shape().rows(),
                row_len: tensor.shape().row_len(),
                numbers: tensor.decode(),
                factor: factor.decode()[0],
            }),
            None => (0, floats(tensor)),
        };
        b.tensor(&name_there, &dims, type_id, &bytes);
    }
    b.build()
}

fn floats(tensor: &Encoded) -> Vec<u8> {
    tensor.decode().iter().flat_map(|x| x.to_le_bytes()).collect()
}

#[test]
fn bitnet_means_the_same_in_every_ternary_type_of_gguf() {
    let (_, source) = golden_model("bitnet");
    for (name, type_id) in [("i2_s", 36), ("tq1_0", 34), ("tq2_0", 35)] {
        let bytes = |t: &Ternary| if name == "i2_s" { t.i2_s() } else { t.blocks(name) };
        let file = bitnet_gguf(&source, |t| (type_id, bytes(t)));
        let checkpoint = nibble_format::open_bytes(file.into(), "bitnet.gguf", &Registry::default()).unwrap();
        assert_eq!(checkpoint.tensors["layer.0.ffn.down"].name(), name);
        check("bitnet", &checkpoint);
    }
}

/// `[E, out, in]`, perhaps gates and then ups, as `[E, in, out]`, gates and ups in turn.
fn turned(parts: &[&Encoded]) -> (Vec<usize>, Vec<f32>) {
    let &[experts, rows, inputs] = parts[0].shape().dims() else { unreachable!("a stack") };
    let numbers: Vec<Vec<f32>> = parts.iter().map(|part| part.decode()).collect();
    let mut out = Vec::new();
    for e in 0..experts {
        for i in 0..inputs {
            for r in 0..rows {
                out.extend(numbers.iter().map(|part| part[(e * rows + r) * inputs + i]));
            }
        }
    }
    (vec![experts, inputs, rows * parts.len()], out)
}

#[test]
fn gpt_oss_means_the_same_with_experts_as_plain_numbers() {
    let (path, source) = golden_model("gpt-oss");
    let dir = TempDir::new("gpt-oss-plain");
    let mut config: Json = serde_json::from_slice(&std::fs::read(path.join("config.json")).unwrap()).unwrap();
    config.as_object_mut().unwrap().remove("quantization_config");
    dir.write("config.json", config.to_string());
    let packed = std::fs::read(path.join("model.safetensors")).unwrap();
    let packed = nibble_format::safetensors::SafetensorsFile::parse(packed.into(), &path).unwrap();
    let (mut head, mut data) = (serde_json::Map::new(), Vec::new());
    let mut add = |name: &str, dtype: &str, dims: &[usize], bytes: &[u8]| {
        let offsets = [data.len(), data.len() + bytes.len()];
        head.insert(name.into(), json!({"dtype": dtype, "shape": dims, "data_offsets": offsets}));
        data.extend(bytes);
    };
    for (name, info) in packed.tensors.iter().filter(|(_, info)| info.dtype != "U8") {
        add(name, &info.dtype, &info.shape, &packed.bytes[info.range.clone()]);
    }
    for layer in 0..2 {
        let expert = |name: &str| &source.tensors[&format!("layer.{layer}.moe.{name}")];
        let both =
            [("gate_up_proj", vec![expert("gate"), expert("up")]), ("down_proj", vec![expert("down")])];
        for (name, parts) in both {
            let (dims, numbers) = turned(&parts);
            let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
            add(&format!("model.layers.{layer}.mlp.experts.{name}"), "F32", &dims, &bytes);
        }
    }
    let head = Json::Object(head).to_string();
    dir.write("model.safetensors", [&(head.len() as u64).to_le_bytes(), head.as_bytes(), &data].concat());
    let checkpoint = nibble_format::open(dir.path(), &Registry::default()).unwrap();
    assert_eq!(checkpoint.tensors["layer.0.moe.gate"].name(), "f32");
    check("gpt-oss", &checkpoint);
}

#[test]
fn gates_that_were_trained_with_other_limits_are_refused() {
    for (key, value) in [("swiglu_limit", 6.0), ("swiglu_alpha", 1.5)] {
        let (_, mut source) = golden_model("gpt-oss");
        source.metadata.set(key, value);
        let message = nibble_model::build(&source).unwrap_err().to_string();
        assert!(message.contains(key) && message.contains(&value.to_string()), "{message}");
    }
}
