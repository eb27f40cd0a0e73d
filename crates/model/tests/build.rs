//! What `build` refuses, and how it says so.

use nibble_format::{Checkpoint, Value};
use nibble_model::{ARCHITECTURES, LayerKind, build};
use nibble_testkit::workspace_root;

fn open(name: &str) -> Checkpoint {
    let path = workspace_root().join("golden/models").join(name);
    nibble_format::open(&path, &nibble_quant::Registry::default()).unwrap()
}

fn message(checkpoint: &Checkpoint) -> String {
    let text = build(checkpoint).unwrap_err().to_string();
    let path = format!("{}: ", checkpoint.path.display());
    text.strip_prefix(&path).expect("the path comes first").to_owned()
}

#[test]
fn an_unknown_architecture_is_refused_with_the_known_ones() {
    let mut checkpoint = open("llama");
    checkpoint.architecture = "gpt2".into();
    let text = message(&checkpoint);
    assert!(text.starts_with("architecture `gpt2` is not known; known are bitnet, "), "{text}");
    for architecture in ARCHITECTURES {
        assert!(architecture.names.iter().all(|name| text.contains(name)), "{text}");
    }
}

#[test]
fn no_two_architectures_share_a_name() {
    let mut names: Vec<_> = ARCHITECTURES.iter().flat_map(|a| a.names).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
}

#[test]
fn a_missing_tensor_is_named_with_the_shape_it_should_have() {
    let mut checkpoint = open("llama");
    checkpoint.tensors.remove("layer.1.attn.k");
    assert_eq!(message(&checkpoint), "tensor `layer.1.attn.k` of shape [32, 64] is missing");
    checkpoint.tensors.remove("embed");
    assert_eq!(message(&checkpoint), "tensor `embed` of shape [V, 64] is missing");
}

#[test]
fn hyperparameters_that_contradict_a_tensor_are_refused_with_both() {
    let mut checkpoint = open("llama");
    checkpoint.metadata.set("feed_forward_length", 128usize);
    let text = message(&checkpoint);
    assert_eq!(text, "tensor `layer.0.ffn.gate`: expected shape [128, 64], found [96, 64]");
    let mut checkpoint = open("llama");
    checkpoint.metadata.set("embedding_length", 32usize);
    assert_eq!(message(&checkpoint), "tensor `embed`: expected shape [V, 32], found [288, 64]");
}

#[test]
fn a_tensor_without_a_place_is_refused() {
    let mut checkpoint = open("llama");
    let norm = checkpoint.tensors["layer.0.attn.norm"].clone();
    checkpoint.tensors.insert("layer.0.attn.q_norm".into(), norm.clone());
    assert!(message(&checkpoint).starts_with("tensor `layer.0.attn.q_norm` has no place"));
    let mut checkpoint = open("llama");
    checkpoint.tensors.insert("layer.2.attn.norm".into(), norm);
    assert!(build(&checkpoint).is_ok(), "layers behind the last one only draft");
    checkpoint.unused.push("blk.0.odd".into());
    assert!(message(&checkpoint).starts_with("tensor `blk.0.odd` has no place"));
}

#[test]
fn hyperparameters_out_of_range_are_refused_before_anything_is_built() {
    for (key, value, expected) in [
        (
            "block_count",
            Value::Int(1 << 40),
            "metadata `block_count`: expected 1 to 1024, found 1099511627776",
        ),
        (
            "block_count",
            Value::Text("4".into()),
            "metadata `block_count`: expected a whole number, found \"4\"",
        ),
        (
            "attention.head_count_kv",
            Value::Int(3),
            "metadata `attention.head_count_kv`: expected a divisor of 4 heads, found 3",
        ),
        (
            "rope.scaling.type",
            Value::Text("longrope".into()),
            "metadata `rope.scaling.type`: expected none, linear, dynamic, yarn or llama3, found longrope",
        ),
        (
            "attention.layer_norm_rms_epsilon",
            Value::Float(f64::NAN),
            "metadata `attention.layer_norm_rms_epsilon`: expected a finite number above 0, found NaN",
        ),
        (
            "hidden_act",
            Value::Text("gelu".into()),
            "metadata `hidden_act`: expected silu, gelu_pytorch_tanh or relu2, found gelu",
        ),
    ] {
        let mut checkpoint = open("llama");
        checkpoint.metadata.values.insert(key.into(), value);
        assert_eq!(message(&checkpoint), expected);
    }
}

#[test]
fn a_size_may_be_a_list_with_zeros_for_layers_without_it() {
    let mut checkpoint = open("qwen3.5");
    checkpoint.metadata.set("attention.head_count_kv", vec![0i64, 0, 0, 2]);
    assert_eq!(build(&checkpoint).unwrap().config.kv_heads, 2);
}

#[test]
fn no_hyperparameter_makes_it_panic() {
    let nasty = [
        Value::Int(0),
        Value::Int(1),
        Value::Int(3),
        Value::Int(-1),
        Value::Int(1 << 20),
        Value::Int(i128::MAX),
        Value::Float(0.0),
        Value::Float(1.0),
        Value::Float(1e-300),
        Value::Float(f64::INFINITY),
        Value::Float(f64::NAN),
        Value::Bool(false),
        Value::Text(String::new()),
        Value::Text("yarn".into()),
        Value::Text("dynamic".into()),
        Value::Ints(vec![]),
        Value::Ints(vec![7, 8]),
        Value::Texts(vec!["linear".into(); 4]),
        Value::Texts(vec![]),
    ];
    for name in ["llama-rope-yarn", "llama-rope-llama3", "gemma3", "qwen3-moe-mixed", "qwen3.5"] {
        let mut checkpoint = open(name);
        let keys: Vec<String> = checkpoint.metadata.values.keys().cloned().collect();
        for key in keys {
            let good = checkpoint.metadata.values.remove(&key).unwrap();
            let _ = build(&checkpoint);
            for value in &nasty {
                checkpoint.metadata.values.insert(key.clone(), value.clone());
                let _ = build(&checkpoint); // either way, but it comes back
            }
            checkpoint.metadata.values.insert(key, good);
        }
        assert!(build(&checkpoint).is_ok(), "{name} as it was");
    }
}

#[test]
fn gemma_layers_without_a_list_follow_the_pattern_of_their_architecture() {
    let mut checkpoint = open("gemma3");
    checkpoint.metadata.values.remove("attention.layer_types");
    let config = build(&checkpoint).unwrap().config;
    let full: Vec<_> = (0..config.layers).filter(|&l| config.kinds[l] == LayerKind::Full).collect();
    assert_eq!((config.layers, full), (6, vec![5]), "every sixth is full");
    assert_eq!((config.window(4), config.window(5)), (Some(20), None));
}
