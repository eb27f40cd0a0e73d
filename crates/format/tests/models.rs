//! Whole models: the trained tiny ones, real ones and golden ones, as far as they are there.

use nibble_format::{Checkpoint, TokenizerSource, open};
use nibble_quant::Registry;
use std::path::Path;

fn opened(path: &Path) -> Checkpoint {
    open(path, &Registry::default()).unwrap_or_else(|e| panic!("{e}"))
}

fn dims<'a>(c: &'a Checkpoint, name: &str) -> &'a [usize] {
    let tensor = c.tensors.get(name).unwrap_or_else(|| panic!("no {name} in {:?}", c.tensors.keys()));
    let dims = tensor.shape();
    Box::leak(dims.dims().to_vec().into_boxed_slice())
}

/// Every layer has its norms and the whole has an embedding of the size that the keys say.
fn check(c: &Checkpoint) {
    let (layers, width) =
        (c.metadata.usize("block_count").unwrap(), c.metadata.usize("embedding_length").unwrap());
    let vocab = c.metadata.usize("vocab_size").unwrap();
    assert_eq!(dims(c, "embed"), [vocab, width]);
    assert_eq!(dims(c, "norm"), [width]);
    for layer in 0..layers {
        assert_eq!(dims(c, &format!("layer.{layer}.attn.norm")), [width], "{}", c.path.display());
        assert_eq!(dims(c, &format!("layer.{layer}.ffn.norm")), [width], "{}", c.path.display());
    }
    assert!(c.metadata.get("rope.layout").is_some() && c.metadata.get("attention.scale").is_some());
    assert_eq!(c.unused, Vec::<String>::new(), "{}", c.path.display());
    assert!(c.tensors.keys().eq(c.file_names.keys()));
}

#[test]
fn tiny_models_open_with_the_shapes_of_their_architectures() {
    let Some(shared) = nibble_testkit::shared_dir() else { return };
    let tiny = |name: &str| {
        let c = opened(&shared.join("tiny").join(name));
        check(&c);
        assert!(matches!(c.tokenizer, TokenizerSource::Json { config: Some(_), .. }));
        assert!(c.chat_template.as_ref().unwrap().contains("<|im_start|>"));
        assert_eq!(c.metadata.ints("tokenizer.ggml.eos_token_ids").unwrap(), [2, 0]);
        c
    };
    for (name, layers) in [("tiny-llama", 8), ("tiny-llama-draft", 2)] {
        let c = tiny(name);
        assert_eq!((c.architecture.as_str(), c.metadata.usize("block_count").unwrap()), ("llama", layers));
        assert_eq!(dims(&c, "layer.1.attn.k"), [128, 256]);
        assert_eq!(c.tensors["layer.1.attn.k"].name(), "bf16");
        assert_eq!(c.tensors.len(), 2 + 9 * layers);
    }
    let c = tiny("tiny-qwen3-moe");
    assert_eq!(c.architecture, "qwen3moe");
    assert_eq!(dims(&c, "layer.3.moe.gate"), [16, 256, 256]);
    assert_eq!(c.tensors["layer.3.moe.gate"].parts().len(), 16);
    assert_eq!(dims(&c, "layer.3.moe.router"), [16, 256]);
    assert_eq!(dims(&c, "layer.3.attn.q_norm"), [64]);
    assert_eq!(c.metadata.find_bools("expert_layers").unwrap().unwrap(), [true; 4]);
    assert_eq!(c.metadata.find_bool("expert_weights_norm").unwrap(), Some(true));

    let c = tiny("tiny-gemma2");
    assert_eq!(c.architecture, "gemma2");
    assert_eq!(c.metadata.texts("attention.layer_types").unwrap(), ["sliding", "full", "sliding", "full"]);
    assert_eq!(c.metadata.f32("attn_logit_softcapping").unwrap(), 20.0);
    assert_eq!(c.metadata.f32("attention.scale").unwrap(), 0.125);
    for norm in ["attn.norm", "attn.post_norm", "ffn.norm", "ffn.post_norm"] {
        let norm = &c.tensors[&format!("layer.0.{norm}")];
        assert_eq!(norm.name(), "f32");
        assert!(
            norm.decode().iter().sum::<f32>() > 0.0,
            "a norm stored minus one, read as the factor itself"
        );
    }

    let c = tiny("tiny-bitnet");
    assert_eq!(dims(&c, "layer.0.attn.k"), [128, 256]);
    assert_eq!(dims(&c, "layer.0.ffn.down.scale"), [1]);
    assert_eq!(c.tensors["layer.0.ffn.down"].name(), "tq2_0");
    assert_eq!(c.metadata.usize("quantization.activation_bits").unwrap(), 8);

    let c = tiny("tiny-qwen3.5");
    assert_eq!(c.architecture, "qwen35");
    assert_eq!(c.metadata.texts("attention.layer_types").unwrap(), ["linear", "linear", "linear", "full"]);
    assert_eq!(dims(&c, "layer.0.delta.conv"), [512, 4]);
    assert!(c.tensors["layer.0.delta.decay"].decode().iter().all(|&x| x < 0.0));
    assert_eq!(dims(&c, "layer.3.attn.q"), [512, 256]);
    assert_eq!(c.metadata.usize("rope.dimension_count").unwrap(), 16);
    assert_eq!(c.metadata.usize("ssm.inner_size").unwrap(), 256);
    assert_eq!(c.metadata.f32("rope.freq_base").unwrap(), 1e7);
}

/// Folders and files of `golden`, which are part of the repository.
fn golden(part: &str) -> Vec<std::path::PathBuf> {
    let dir = nibble_testkit::workspace_root().join("golden").join(part);
    let mut paths: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.is_dir() || path.extension().is_some_and(|e| e == "gguf"));
    paths.sort();
    assert!(paths.len() > 5, "{}", dir.display());
    paths
}

#[test]
fn golden_models_open() {
    for path in golden("models").iter().chain(&golden("gguf")) {
        check(&opened(path));
    }
}

#[test]
fn packed_ternary_weights_are_exactly_minus_one_zero_and_one() {
    for name in ["bitnet-auto", "bitnet-linear"] {
        let c = opened(&nibble_testkit::workspace_root().join("golden/models").join(name));
        let packed = c.tensors.keys().filter(|name| c.tensors.contains_key(&format!("{name}.scale")));
        let packed: Vec<_> = packed.map(|name| &c.tensors[name]).collect();
        assert!(packed.len() >= 14, "{name}");
        for tensor in packed {
            assert!(tensor.decode().iter().all(|x| [-1.0, 0.0, 1.0].contains(x)), "{name}: {tensor:?}");
        }
    }
}

#[test]
fn real_models_open() {
    let dir = nibble_testkit::test_data_dir().join("models");
    let paths = std::fs::read_dir(&dir).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path()));
    let paths: Vec<_> = paths.filter(|path| path.extension().is_some_and(|e| e == "gguf")).collect();
    if paths.is_empty() {
        eprintln!("SKIPPED: no real models in {}", dir.display());
    }
    for path in paths {
        let c = opened(&path);
        check(&c);
        assert!(matches!(c.tokenizer, TokenizerSource::Metadata) && c.chat_template.is_some());
        assert!(c.weight_bytes() * 100 > c.files[0].1 * 95, "nearly all of the file is weights");
    }
}

#[test]
fn the_same_model_has_the_same_keys_and_weights_in_both_containers() {
    const KEYS: &[&str] = &[
        "block_count",
        "context_length",
        "embedding_length",
        "feed_forward_length",
        "attention.head_count",
        "attention.head_count_kv",
        "attention.key_length",
        "attention.value_length",
        "attention.layer_norm_rms_epsilon",
        "attention.scale",
        "attention.sliding_window",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "rope.freq_base",
        "rope.local.freq_base",
        "rope.dimension_count",
        "rope.scaling.factor",
        "rope.scaling.attn_factor",
        "expert_count",
        "expert_used_count",
        "expert_feed_forward_length",
        "vocab_size",
        "ssm.conv_kernel",
        "ssm.state_size",
        "ssm.group_count",
        "ssm.time_step_rank",
        "ssm.inner_size",
    ];
    let mut compared = 0;
    for path in golden("gguf") {
        let (name, encoding) = path.file_stem().unwrap().to_str().unwrap().rsplit_once('-').unwrap();
        let (gguf, hf) = (opened(&path), opened(&path.parent().unwrap().with_file_name("models").join(name)));
        assert_eq!(gguf.architecture, hf.architecture, "{name}");
        for key in KEYS {
            let (a, b) = (gguf.metadata.find_f32(key).unwrap(), hf.metadata.find_f32(key).unwrap());
            // other writers leave windows out where there are none, and scalings whose factors became a tensor
            let left_out = a.is_none() && (key.contains("scaling") || *key == "attention.sliding_window");
            assert!(left_out || a == b, "{name}: {key}: {a:?} in GGUF, {b:?} in safetensors");
        }
        if hf.metadata.get("attention.layer_types").is_some()
            && gguf.metadata.get("attention.layer_types").is_some()
        {
            let types = |c: &Checkpoint| c.metadata.texts("attention.layer_types").unwrap().to_vec();
            assert_eq!(types(&gguf), types(&hf), "{name}");
        }
        if ["f32", "f16", "bf16"].contains(&encoding) {
            compared += same_weights(name, &gguf, &hf);
        }
    }
    assert!(compared > 100, "{compared} weights were compared");
}

/// Compares all weights, once the orders that differ are undone; returns how many.
fn same_weights(name: &str, gguf: &Checkpoint, hf: &Checkpoint) -> usize {
    let extra = |c: &Checkpoint, other: &Checkpoint| {
        let not = |n: &&String| !other.tensors.contains_key(*n) && !n.starts_with("rope.");
        c.tensors.keys().filter(not).cloned().collect::<Vec<_>>()
    };
    assert_eq!(extra(gguf, hf), Vec::<String>::new(), "{name}");
    assert_eq!(extra(hf, gguf), Vec::<String>::new(), "{name}");
    for (tensor, expected) in &hf.tensors {
        let found = &gguf.tensors[tensor];
        assert_eq!(found.shape(), expected.shape(), "{name}: {tensor}");
        let (found, expected) = (found.decode(), expected.decode());
        let from = original_place(gguf, tensor, hf.tensors[tensor].shape().row_len());
        let close = |(i, x): (usize, &f32)| (x - expected[from(i)]).abs() <= 1e-6 * x.abs();
        assert!(found.iter().enumerate().all(close), "{name}: {tensor}");
    }
    hf.tensors.len()
}

/// Where the number at a place of a GGUF tensor was in the original: rows of q and k are permuted where rotation is
/// interleaved, and the value heads of a gated delta net where their order is tiled.
fn original_place(c: &Checkpoint, tensor: &str, row_len: usize) -> Box<dyn Fn(usize) -> usize> {
    let m = &c.metadata;
    let interleaved = m.text("rope.layout").unwrap() == "interleaved";
    if interleaved && (tensor.ends_with("attn.q") || tensor.ends_with("attn.k")) {
        let head = m.usize("attention.key_length").unwrap();
        let row = move |row: usize| row / head * head + row % 2 * head / 2 + row % head / 2;
        return Box::new(move |i| row(i / row_len) * row_len + i % row_len);
    }
    if m.find_text("ssm.v_order").unwrap() != Some("tiled") || !tensor.contains(".delta.") {
        return Box::new(|i| i);
    }
    let (keys, values) = (m.usize("ssm.group_count").unwrap(), m.usize("ssm.time_step_rank").unwrap());
    let (key, value) = (m.usize("ssm.state_size").unwrap(), m.usize("ssm.inner_size").unwrap() / values);
    // where the value heads begin, how long one is, and after how many numbers they come again
    let (start, width, again) = match tensor.rsplit('.').next().unwrap() {
        "qkv" | "conv" => (2 * keys * key * row_len, value * row_len, usize::MAX),
        "z" => (0, value * row_len, usize::MAX),
        "a" | "b" => (0, row_len, usize::MAX),
        "decay" | "dt_bias" => (0, 1, usize::MAX),
        "out" => (0, value, row_len),
        _ => return Box::new(|i| i),
    };
    let grouped = move |head: usize| head % keys * (values / keys) + head / keys;
    Box::new(move |i| match (i % again).checked_sub(start) {
        Some(place) => i - place + grouped(place / width) * width + place % width,
        None => i,
    })
}
