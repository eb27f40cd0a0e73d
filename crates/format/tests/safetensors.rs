//! Hugging Face directories: headers, indexes and configurations, right and wrong.

use nibble_format::{
    Checkpoint, Error, open,
    safetensors::{SafetensorsFile, read_config},
};
use nibble_quant::Registry;
use nibble_testkit::Rng;
use nibble_testkit::TempDir;
use serde_json::{Value as Json, json};
use std::path::Path;

fn header(text: &str, data: &[u8]) -> Vec<u8> {
    [&(text.len() as u64).to_le_bytes(), text.as_bytes(), data].concat()
}

/// A file with tensors of zeros.
fn zeros(tensors: &[(&str, &str, &[usize])]) -> Vec<u8> {
    let (mut entries, mut end) = (serde_json::Map::new(), 0);
    for (name, dtype, shape) in tensors {
        let bytes = match *dtype {
            "U8" | "I8" | "F8_E4M3" => 1,
            "F32" | "I32" | "U32" => 4,
            _ => 2,
        };
        let begin = end;
        end += shape.iter().product::<usize>() * bytes;
        entries.insert((*name).into(), json!({"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}));
    }
    header(&Json::Object(entries).to_string(), &vec![0; end])
}

fn parsed(bytes: Vec<u8>) -> Result<SafetensorsFile, Error> {
    SafetensorsFile::parse(bytes.into(), Path::new("test.safetensors"))
}

#[test]
fn headers_are_checked_against_the_data() {
    let entry = |dtype: &str, shape: &str, begin: u64, end: u64| {
        format!(r#""t": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [{begin}, {end}]}}"#)
    };
    let refused = |text: &str, data: usize, word: &str| {
        let message = parsed(header(text, &vec![0; data])).unwrap_err().to_string();
        assert!(message.starts_with("test.safetensors: "), "{message}");
        assert!(message.contains(word), "{message:?} does not say {word:?}");
    };
    let good = format!("{{\"__metadata__\": {{\"format\": \"pt\"}}, {}}}  ", entry("F16", "[2, 3]", 0, 12));
    let file = parsed(header(&good, &[0; 12])).unwrap();
    assert_eq!((file.metadata["format"].as_str(), &file.tensors["t"].shape[..]), ("pt", &[2, 3][..]));
    let one =
        |dtype: &str, shape: &str, begin: u64, end: u64| format!("{{{}}}", entry(dtype, shape, begin, end));
    refused(&one("F16", "[2, 3]", 0, 10), 10, "12 bytes");
    refused(&one("F16", "[2, 3]", 0, 12), 10, "only 10");
    refused(&one("F16", "[2, 3]", 0, 12), 14, "14 in the file");
    refused(&one("F16", "[2, 3]", 2, 14), 14, "without gap");
    refused(&one("F16", "[2, 3]", 12, 0), 12, "tensor `t`");
    refused(&one("F16", "[4611686018427387904, 4]", 0, 0), 0, "overflows");
    refused(&one("F16", "[9223372036854775808]", 0, 0), 0, "overflows");
    refused(&one("Q9", "[2]", 0, 4), 4, "Q9");
    refused(&one("F4", "[3]", 0, 2), 2, "12 bits");
    refused(&one("F16", "[-1]", 0, 4), 4, "JSON");
    let two = format!("{{{}, {}}}", entry("F16", "[1]", 0, 2), entry("F16", "[1]", 2, 4));
    refused(&two, 4, "twice");
    refused("[]", 0, "starts with `{`");
    refused("{\"t\": 1}", 0, "JSON");
    refused(&format!("{}1", "{\"a\":".repeat(10_000)), 0, "JSON");
    for (bytes, word) in [(vec![0; 7], "only 7"), (u64::MAX.to_le_bytes().to_vec(), "at most 100000000")] {
        assert!(parsed(bytes).unwrap_err().to_string().contains(word));
    }
    assert!(parsed([100u64.to_le_bytes(), [b'{'; 8]].concat()).unwrap_err().to_string().contains("only 8"));
}

#[test]
fn no_changed_byte_and_no_cut_makes_the_reader_panic() {
    let file =
        zeros(&[("a.weight", "F16", &[2, 3]), ("b", "F32", &[]), ("c", "BF16", &[0, 4]), ("d", "I64", &[4])]);
    let survives = |bytes: Vec<u8>| {
        if let Ok(file) = parsed(bytes) {
            for name in file.tensors.keys() {
                file.tensor(name, &Registry::default())
                    .ok()
                    .flatten()
                    .inspect(|tensor| drop(tensor.decode()));
            }
        }
    };
    let mut rng = Rng::new(11);
    for at in 0..file.len() {
        survives(file[..at].to_vec());
        for _ in 0..20 {
            let mut changed = file.clone();
            changed[at] = rng.bits() as u8;
            survives(changed);
        }
    }
}

/// The configuration of a llama with one layer, and changes to it.
fn config(changes: Json) -> Json {
    let mut config = json!({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64, "intermediate_size": 96,
        "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 8,
        "rms_norm_eps": 1e-5, "max_position_embeddings": 128, "rope_theta": 10000.0
    });
    for (key, value) in changes.as_object().unwrap() {
        config[key] = value.clone();
    }
    config
}

const NORM: &[(&str, &str, &[usize])] = &[("model.norm.weight", "BF16", &[64])];

/// A directory with a configuration and one file of zeros.
fn directory(dir: &TempDir, config: &Json, tensors: &[(&str, &str, &[usize])]) -> Result<Checkpoint, Error> {
    dir.write("config.json", config.to_string());
    dir.write("model.safetensors", zeros(tensors));
    open(dir.path(), &Registry::default())
}

#[test]
fn schemes_that_are_not_known_or_not_there_are_refused_by_name() {
    let dir = TempDir::new("format-schemes");
    let refused = |config: &Json, tensors: &[(&str, &str, &[usize])], words: &[&str]| {
        let message = directory(&dir, config, tensors).unwrap_err().to_string();
        assert!(words.iter().all(|word| message.contains(word)), "{message:?} does not say {words:?}");
    };
    let method = |method: &str, key: &str, value: Json| {
        let mut quantization =
            json!({"quant_method": method, "config_groups": {}, "format": "pack-quantized"});
        if !key.is_empty() {
            quantization[key] = value;
        }
        config(json!({"quantization_config": quantization}))
    };
    // The configuration promises what the file does not hold.
    for (name, ending) in [
        ("exl2", ".q_weight"),
        ("exl3", ".trellis"),
        ("gptq", ".qweight"),
        ("awq", ".qweight"),
        ("compressed-tensors", ".weight_packed"),
        ("fp8", ".weight_scale"),
        ("mxfp4", "_blocks"),
        ("bitnet", ".weight_scale"),
    ] {
        refused(&method(name, "", Json::Null), NORM, &["found nothing", ending]);
    }
    refused(
        &config(json!({"quantization": {"bits": 4, "group_size": 64}})),
        NORM,
        &["found nothing", ".scales"],
    );
    let prism = json!({"model_type": "prism_hadamard_qwen35", "quantization": {"bits": 2}});
    refused(&config(prism), NORM, &["prism_hadamard_qwen35"]);
    refused(&method("new", "", Json::Null), NORM, &["\"new\"", "not known"]);
    refused(&config(json!({"quantization_config": {"bits": 4}})), NORM, &["quant_method"]);
    // Settings that are not supported.
    for (name, key, value, word) in [
        ("bitnet", "quantization_mode", json!("online"), "online"),
        ("bitnet", "linear_class", json!("other"), "other"),
        ("bitnet", "use_rms_norm", json!(true), "use_rms_norm"),
        ("gptq", "bits", json!(5), "5 bits"),
        ("gptq", "bits", json!(-4), "`bits`"),
        ("gptq", "group_size", json!("all"), "`group_size`"),
        ("gptq", "checkpoint_format", json!("marlin"), "marlin"),
        ("gptq", "dynamic", json!({"-:x": {}}), "dynamic"),
        ("awq", "version", json!("gemv"), "gemv"),
        ("awq", "bits", json!(3), "3 bits"),
        ("compressed-tensors", "format", json!("marlin-24"), "marlin-24"),
        ("compressed-tensors", "config_groups", json!({"g": {"weights": {"num_bits": 16}}}), "16 bits"),
        ("compressed-tensors", "config_groups", Json::Null, "config_groups"),
        ("compressed-tensors", "sparsity_config", json!({"format": "sparse-24-bitmask"}), "sparse"),
        ("fp8", "weight_block_size", json!([128]), "weight_block_size"),
        ("fp8", "weight_block_size", json!([0, 128]), "weight_block_size"),
        ("modelopt", "quant_algo", json!("W4A8_AWQ"), "W4A8_AWQ"),
    ] {
        refused(&method(name, key, value), NORM, &["config.json", word]);
    }
    // The file holds what the configuration does not speak of.
    let endings = [
        ("qweight", "I32", "GPTQ"),
        ("q_weight", "I32", "EXL2"),
        ("trellis", "I16", "EXL3"),
        ("weight_packed", "I32", "compr"),
        ("weight_scale_inv", "F32", "FP8"),
        ("weight_scale", "F32", "BitNet"),
        ("scales", "BF16", "MLX"),
        ("weight", "F8_E4M3", "packed weights"),
        ("weight", "U32", "packed weights"),
        ("weight", "I8", "packed weights"),
    ];
    for (ending, dtype, word) in endings {
        let name = format!("model.layers.0.mlp.up_proj.{ending}");
        refused(&config(json!({})), &[(&name, dtype, &[2])], &["up_proj", word]);
    }
    dir.write("quantize_config.json", "{\"bits\": 5}");
    refused(&config(json!({})), NORM, &["quantize_config.json", "5 bits"]);
    std::fs::remove_file(dir.file("quantize_config.json")).unwrap();
    dir.write("hf_quant_config.json", "{\"quantization\": {\"quant_algo\": \"INT4_AWQ\"}}");
    refused(&config(json!({})), NORM, &["hf_quant_config.json", "INT4_AWQ"]);
}

#[test]
fn an_index_names_files_of_its_own_directory_only() {
    let dir = TempDir::new("format-index");
    dir.write("config.json", config(json!({})).to_string());
    dir.write(
        "a.safetensors",
        zeros(&[("model.norm.weight", "BF16", &[64]), ("stray.weight", "BF16", &[1])]),
    );
    dir.write("b.safetensors", zeros(&[("lm_head.weight", "BF16", &[8, 64])]));
    let with_index = |map: Json| {
        dir.write("model.safetensors.index.json", json!({"weight_map": map}).to_string());
        open(dir.path(), &Registry::default())
    };
    let model =
        with_index(json!({"model.norm.weight": "a.safetensors", "lm_head.weight": "b.safetensors"})).unwrap();
    assert_eq!(model.tensors.keys().collect::<Vec<_>>(), ["head", "norm"]);
    assert_eq!((model.ignored, model.files.len()), (vec!["stray.weight".to_owned()], 2));
    for file in ["../a.safetensors", "/etc/a.safetensors", "..\\a.safetensors", ".safetensors", "a.bin", ""] {
        let message = with_index(json!({"model.norm.weight": file})).unwrap_err().to_string();
        assert!(message.contains("same directory") && message.contains("model.norm.weight"), "{message}");
    }
    let message = with_index(json!({"lm_head.weight": "a.safetensors"})).unwrap_err().to_string();
    assert!(message.contains("lm_head.weight") && message.contains("a.safetensors"), "{message}");
    let message = with_index(json!({"lm_head.weight": "gone.safetensors"})).unwrap_err().to_string();
    assert!(message.contains("gone.safetensors"), "{message}");
}

#[test]
fn rotary_settings_are_the_same_in_every_spelling() {
    let dir = TempDir::new("format-rope");
    let keys = |changes: Json| {
        let metadata = directory(&dir, &config(changes), NORM).unwrap().metadata;
        let rope = metadata.values.into_iter().filter(|(key, _)| key.starts_with("rope."));
        rope.collect::<Vec<_>>()
    };
    let yarn = json!({"factor": 4.0, "original_max_position_embeddings": 32});
    let spell = |key: &str, kind: &str| {
        let mut settings = yarn.clone();
        settings[kind] = "yarn".into();
        json!({key: settings})
    };
    let expected = keys(spell("rope_scaling", "type"));
    let get = |key: &str| expected.iter().find(|(k, _)| k == key).map(|(_, v)| v.to_string()).unwrap();
    assert_eq!(get("rope.scaling.type"), "\"yarn\"");
    assert_eq!(&get("rope.scaling.attn_factor")[..8], "1.138629");
    assert_eq!(get("rope.scaling.original_context_length"), "32");
    assert_eq!(keys(spell("rope_scaling", "rope_type")), expected);
    assert_eq!(keys(spell("rope_parameters", "rope_type")), expected);
    let mut given = spell("rope_scaling", "type");
    given["rope_scaling"]["attention_factor"] = json!(1.0);
    assert!(keys(given).iter().any(|(k, v)| k == "rope.scaling.attn_factor" && v.to_string() == "1"));
    let plain = keys(json!({}));
    assert_eq!(keys(json!({"rope_scaling": null})), plain);
    assert_eq!(keys(json!({"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}})), plain);
    assert_eq!(
        keys(json!({"rope_scaling": {"rope_type": "mrope", "mrope_section": [1, 1]}})).len(),
        plain.len() + 1
    );
}

#[test]
fn gemma3_is_read_from_the_text_part_with_its_defaults() {
    let dir = TempDir::new("format-gemma3");
    let text = json!({"model_type": "gemma3_text", "hidden_size": 64, "num_hidden_layers": 7, "sliding_window": 32,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"}});
    let multimodal = json!({"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
        "text_config": text, "vision_config": {"hidden_size": 9}, "eos_token_id": [1, 106]});
    let tensors: &[(&str, &str, &[usize])] = &[
        ("language_model.model.norm.weight", "BF16", &[64]),
        ("language_model.model.layers.0.self_attn.q_norm.weight", "BF16", &[256]),
        ("model.language_model.layers.1.pre_feedforward_layernorm.weight", "BF16", &[64]),
        ("vision_tower.encoder.weight", "BF16", &[2]),
        ("multi_modal_projector.mm.weight", "BF16", &[2]),
        ("model.layers.0.self_attn.surprise.weight", "BF16", &[2]),
    ];
    let model = directory(&dir, &multimodal, tensors).unwrap();
    let m = &model.metadata;
    assert_eq!(model.architecture, "gemma3");
    assert_eq!(
        (m.usize("attention.head_count").unwrap(), m.usize("attention.key_length").unwrap()),
        (8, 256)
    );
    assert_eq!(m.f32("attention.scale").unwrap(), 1.0 / 16.0);
    assert_eq!((m.f32("rope.freq_base").unwrap(), m.f32("rope.local.freq_base").unwrap()), (1e6, 1e4));
    assert_eq!(m.f32("rope.scaling.factor").unwrap(), 8.0);
    assert_eq!(m.ints("tokenizer.ggml.eos_token_ids").unwrap(), [1, 106]);
    let types = m.texts("attention.layer_types").unwrap();
    assert!(types.iter().enumerate().all(|(i, t)| (t == "full") == (i == 5)), "{types:?}");
    assert_eq!(model.tensors.keys().collect::<Vec<_>>(), ["layer.0.attn.q_norm", "layer.1.ffn.norm", "norm"]);
    assert_eq!(model.tensors["norm"].decode(), [1.0; 64], "stored as zeros, meaning ones");
    assert_eq!(
        (model.ignored.len(), model.unused),
        (2, vec!["model.layers.0.self_attn.surprise.weight".to_owned()])
    );
}

#[test]
fn experts_are_stacked_and_must_be_complete() {
    let dir = TempDir::new("format-experts");
    let moe = |count: usize| {
        config(
            json!({"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": count,
            "num_hidden_layers": 4, "mlp_only_layers": [1], "decoder_sparse_step": 2}),
        )
    };
    let name = |expert: usize| format!("model.layers.0.mlp.experts.{expert}.gate_proj.weight");
    let (a, b) = (name(0), name(1));
    let model = directory(&dir, &moe(2), &[(&a, "BF16", &[3, 8]), (&b, "BF16", &[3, 8])]).unwrap();
    assert_eq!(model.tensors["layer.0.moe.gate"].shape().dims(), [2, 3, 8]);
    assert_eq!(model.metadata.find_bools("expert_layers").unwrap().unwrap(), [false, false, false, true]);
    for (count, tensors) in [
        (3, [(&*a, "BF16", &[3, 8][..]), (&*b, "BF16", &[3, 8])]),
        (2, [(&*a, "BF16", &[3, 8]), (&*b, "BF16", &[4, 8])]),
        (2, [(&*a, "BF16", &[3, 8]), (&*b, "F16", &[3, 8])]),
    ] {
        let message = directory(&dir, &moe(count), &tensors).unwrap_err().to_string();
        assert!(message.contains("layer.0.moe.gate") && message.contains("experts"), "{message}");
    }
    let fused = [("model.layers.0.mlp.experts.gate_up_proj", "BF16", &[2, 6, 8][..])];
    let model = directory(&dir, &moe(2), &fused).unwrap();
    assert_eq!(model.tensors["layer.0.moe.gate"].shape().dims(), [2, 3, 8]);
    assert_eq!(model.tensors["layer.0.moe.up"].shape().dims(), [2, 3, 8]);
}

#[test]
fn chat_templates_are_found_wherever_they_are() {
    let dir = TempDir::new("format-templates");
    let template = |tokenizer_config: Json| {
        dir.write("tokenizer_config.json", tokenizer_config.to_string());
        directory(&dir, &config(json!({})), NORM).unwrap().chat_template
    };
    assert_eq!(template(json!({})), None);
    assert_eq!(template(json!({"chat_template": "one"})).as_deref(), Some("one"));
    let list = json!([{"name": "tool_use", "template": "two"}, {"name": "default", "template": "three"}]);
    assert_eq!(template(json!({"chat_template": list})).as_deref(), Some("three"));
    dir.write("chat_template.jinja", "four");
    assert_eq!(template(json!({"chat_template": "one"})).as_deref(), Some("four"));
}

#[test]
fn configurations_are_checked() {
    let dir = TempDir::new("format-configurations");
    for (changes, word) in [
        (json!({"num_hidden_layers": 0}), "block_count"),
        (json!({"num_hidden_layers": 1_000_000_000}), "block_count"),
        (json!({"num_hidden_layers": null}), "block_count"),
        (json!({"num_hidden_layers": "two"}), "block_count"),
        (json!({"hidden_size": [1, 2]}), "hidden_size"),
        (json!({"layer_types": ["full_attention", "full_attention"]}), "layer_types"),
        (json!({"rope_theta": "big"}), "rope_theta"),
        (json!({"eos_token_id": -1}), "eos_token_id"),
    ] {
        let message = directory(&dir, &config(changes), NORM).unwrap_err().to_string();
        assert!(message.contains("config.json") && message.contains(word), "{message}");
    }
    let model =
        directory(&dir, &config(json!({"model_type": "novel", "architectures": ["NovelForCausalLM"]})), NORM);
    assert_eq!(model.unwrap().architecture, "novel", "for the models to refuse");
    let windowed =
        json!({"model_type": "mistral", "architectures": ["MistralForCausalLM"], "sliding_window": 16});
    let model = directory(&dir, &config(windowed), NORM).unwrap();
    assert_eq!(
        (model.architecture.as_str(), model.metadata.usize("attention.sliding_window").unwrap()),
        ("llama", 16)
    );
    assert_eq!(model.metadata.texts("attention.layer_types").unwrap(), ["sliding"]);
}

#[test]
fn ternary_weights_keep_their_values_and_their_factor() {
    let Some(shared) = nibble_testkit::shared_dir() else { return };
    let path = shared.join("vectors/bitnet_hf.safetensors");
    let vector = SafetensorsFile::parse(std::fs::read(&path).unwrap().into(), &path).unwrap();
    let (raw, ternary) = (&vector.tensors["raw"], &vector.tensors["ternary"]);
    let expected: Vec<f32> = vector.raw(ternary).iter().map(|&b| f32::from(b as i8)).collect();
    let factor = vector.tensor("weight_scale", &Registry::default()).unwrap().unwrap().decode()[0];
    let base = "model.layers.0.mlp.up_proj";
    let scale_bytes = vector.raw(&vector.tensors["weight_scale"]);
    let entries = json!({
        format!("{base}.weight"): {"dtype": "U8", "shape": raw.shape, "data_offsets": [0, raw.range.len()]},
        format!("{base}.weight_scale"): {"dtype": "BF16", "shape": [1],
            "data_offsets": [raw.range.len(), raw.range.len() + 2]},
    });
    let file = header(&entries.to_string(), &[&vector.raw(raw)[..], &scale_bytes].concat());
    let dir = TempDir::new("format-bitnet");
    for (class, expected_factor) in [("bitlinear", 1.0 / factor), ("autobitlinear", factor)] {
        let quantization = json!({"quant_method": "bitnet", "linear_class": class});
        dir.write("config.json", config(json!({"quantization_config": quantization})).to_string());
        dir.write("model.safetensors", &file);
        let model = open(dir.path(), &Registry::default()).unwrap();
        let weight = &model.tensors["layer.0.ffn.up"];
        assert_eq!(weight.shape().dims(), ternary.shape);
        assert_eq!(weight.decode(), expected);
        assert_eq!(model.tensors["layer.0.ffn.up.scale"].decode(), [expected_factor], "{class}");
    }
    let scale = ("model.layers.0.mlp.up_proj.weight_scale", "BF16", &[1][..]);
    let broken = zeros(&[scale, ("model.layers.0.mlp.up_proj.weight", "U8", &[4, 64])]);
    let broken = [&broken[..broken.len() - 1], &[0b1100]].concat();
    dir.write("model.safetensors", broken);
    let message = open(dir.path(), &Registry::default()).unwrap_err().to_string();
    assert!(message.contains("up_proj") && message.contains("ternary codes"), "{message}");
}

#[test]
fn no_changed_configuration_makes_the_reader_panic() {
    let rich =
        config(json!({"model_type": "qwen3_5_moe", "num_experts": 4, "mlp_only_layers": [0], "head_dim": 16,
        "linear_num_value_heads": 4, "linear_value_head_dim": 16, "sliding_window": 8, "num_hidden_layers": 3,
        "layer_types": ["linear_attention", "sliding_attention", "full_attention"], "eos_token_id": [1, 2],
        "rope_parameters": {"rope_type": "yarn", "factor": 4, "mscale": 1, "mscale_all_dim": 0.7,
            "partial_rotary_factor": 0.25, "mrope_section": [1, 1]}}))
        .to_string()
        .into_bytes();
    let generation = br#"{"eos_token_id": [3], "temperature": 0.7, "top_k": 20}"#;
    let (architecture, metadata) = read_config(&rich, Some(generation)).unwrap();
    assert_eq!((architecture.as_str(), metadata.usize("general.sampling.top_k").unwrap()), ("qwen35moe", 20));
    let mut rng = Rng::new(5);
    let mut read = 0;
    for at in 0..rich.len() {
        for byte in [b'9', b'-', b'"', b'e', rng.bits() as u8] {
            let mut changed = rich.clone();
            changed[at] = byte;
            read += usize::from(read_config(&changed, Some(generation)).is_ok());
        }
    }
    assert!(read > 100, "{read} changed configurations still make sense");
}
