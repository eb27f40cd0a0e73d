use super::*;
use nibble_backend_reference::inverse_frequencies;
use nibble_format::{Metadata, Value};
use serde_json::Value as Json;
use std::collections::BTreeMap;

fn read(values: &[(&str, Value)], head_dim: usize, context: usize) -> Result<RopeConfig, Problem> {
    let mut metadata = Metadata::default();
    for (key, value) in values {
        metadata.set(key, value.clone());
    }
    RopeConfig::read(&Keys(&metadata), head_dim, context)
}

fn yarn(more: &[(&str, Value)]) -> RopeConfig {
    let mut values = vec![
        ("rope.freq_base", Value::Float(1e6)),
        ("rope.scaling.type", Value::from("yarn")),
        ("rope.scaling.factor", Value::Float(4.0)),
        ("rope.scaling.original_context_length", Value::Int(32_768)),
    ];
    values.extend_from_slice(more);
    read(&values, 128, 131_072).unwrap()
}

#[test]
fn yarn_derives_its_magnitude_unless_the_file_says_it() {
    let tensors = BTreeMap::new();
    let none = Weights::new(&tensors);
    let derived = yarn(&[]).op(&none).unwrap().magnitude;
    assert!((derived - 1.138_629).abs() < 1e-6, "{derived}");
    let said = yarn(&[("rope.scaling.attn_factor", Value::Float(1.0))]);
    assert_eq!(said.op(&none).unwrap().magnitude, 1.0);
}

#[test]
fn llama_3_1_stretches_long_waves_and_leaves_short_ones() {
    let plain = read(&[("rope.freq_base", Value::Float(5e5))], 128, 131_072).unwrap();
    let values = [
        ("rope.freq_base", Value::Float(5e5)),
        ("rope.scaling.type", Value::from("llama3")),
        ("rope.scaling.factor", Value::Float(8.0)),
        ("rope.scaling.low_freq_factor", Value::Float(1.0)),
        ("rope.scaling.high_freq_factor", Value::Float(4.0)),
        ("rope.scaling.original_context_length", Value::Int(8192)),
    ];
    let scaled = read(&values, 128, 131_072).unwrap().frequencies();
    let ratio = |pair: usize| scaled[pair] / plain.frequencies()[pair];
    for (pair, expected) in
        [(0, 1.0), (28, 1.0), (30, 0.64374), (32, 0.37112), (34, 0.19021), (36, 0.125), (63, 0.125)]
    {
        assert!((ratio(pair) - expected).abs() < 5e-6, "pair {pair}: {}", ratio(pair));
    }
}

/// The canonical keys of a Hugging Face `rope_parameters`.
fn canonical(case: &Json) -> Vec<(&'static str, Value)> {
    const NAMES: [(&str, &str); 11] = [
        ("rope_theta", "rope.freq_base"),
        ("rope_type", "rope.scaling.type"),
        ("factor", "rope.scaling.factor"),
        ("original_max_position_embeddings", "rope.scaling.original_context_length"),
        ("low_freq_factor", "rope.scaling.low_freq_factor"),
        ("high_freq_factor", "rope.scaling.high_freq_factor"),
        ("beta_fast", "rope.scaling.yarn_beta_fast"),
        ("beta_slow", "rope.scaling.yarn_beta_slow"),
        ("attention_factor", "rope.scaling.attn_factor"),
        ("mscale", "rope.scaling.mscale"),
        ("mscale_all_dim", "rope.scaling.mscale_all_dim"),
    ];
    let parameters = &case["rope_parameters"];
    let value = |json: &Json| match json {
        Json::String(text) => Value::from(text.as_str()),
        Json::Bool(b) => Value::Bool(*b),
        number => number.as_i64().map_or_else(|| Value::Float(number.as_f64().unwrap()), Value::from),
    };
    let mut values: Vec<_> =
        NAMES.iter().filter_map(|(hf, key)| Some((*key, value(parameters.get(hf)?)))).collect();
    if let Some(truncate) = parameters.get("truncate") {
        values.push(("rope.scaling.truncate", value(truncate)));
    }
    if let Some(part) = parameters["partial_rotary_factor"].as_f64() {
        let dims = case["head_dim"].as_f64().unwrap() * part;
        values.push(("rope.dimension_count", Value::Int(dims as i128)));
    }
    values
}

#[test]
fn frequencies_are_those_of_transformers() {
    let path = nibble_testkit::workspace_root().join("golden/rope.json");
    let file: Json = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let mut compared = 0;
    for case in file["cases"].as_array().unwrap() {
        let name = case["name"].as_str().unwrap();
        let size = |key: &str| case[key].as_u64().map(|n| n as usize);
        let config =
            read(&canonical(case), size("head_dim").unwrap(), size("max_position_embeddings").unwrap());
        if name.starts_with("longrope") {
            let error = config.unwrap_err().to_string();
            assert!(error.contains("rope.scaling.type") && error.contains("longrope"), "{error}");
            continue;
        }
        let rope = config.unwrap().op(&Weights::new(&BTreeMap::new())).unwrap();
        let factor = case["attention_factor"].as_f64().unwrap();
        assert!((f64::from(rope.magnitude) - factor).abs() < 1e-6, "{name}: {}", rope.magnitude);
        let found = inverse_frequencies(&rope, 0, size("seq_len").unwrap_or(1) as u32);
        let expected: Vec<f64> =
            case["inv_freq"].as_array().unwrap().iter().map(|f| f.as_f64().unwrap()).collect();
        assert_eq!(found.len(), expected.len(), "{name}");
        for (pair, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert!((found / expected - 1.0).abs() < 3e-6, "{name}, pair {pair}: {found}, not {expected}");
        }
        compared += 1;
    }
    assert!(compared >= 14, "{compared}");
}

#[test]
fn factors_of_the_file_divide_the_frequencies() {
    let bytes: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|f| f.to_le_bytes()).collect();
    let factors = |bytes: Vec<u8>| {
        let shape = nibble_tensor::Shape::from([2]);
        let data = nibble_quant::Encoded::new("f", shape, nibble_quant::codec("f32"), bytes.into()).unwrap();
        BTreeMap::from([("rope.factors".to_owned(), data)])
    };
    let config = read(&[], 4, 100).unwrap();
    let rope = config.op(&Weights::new(&factors(bytes))).unwrap();
    assert_eq!(inverse_frequencies(&rope, 0, 1), [1.0, f64::from(0.005f32)]);
    assert!(config.op(&Weights::new(&factors(vec![0; 8]))).is_err(), "a factor of 0");
    let wide = read(&[], 8, 100).unwrap();
    assert!(wide.op(&Weights::new(&factors(vec![0; 8]))).is_err(), "not one for each pair");
}
