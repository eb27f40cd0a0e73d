//! Canonical metadata -> the keys of a GGUF file.
//!
//! What a GGUF file of an architecture leaves unsaid is not guessed: the keys are read back, and those that would come
//! back with another value are added under their canonical names, which this library reads and others may not.

use crate::{Error, Kind};
use nibble_format::{
    Checkpoint, Metadata, Value,
    gguf::{self, Entry, ValueType},
};
use nibble_graph::RopeLayout;
use nibble_model::{RopeConfig, Scaling, yarn_magnitude};
use nibble_quant::Registry;

/// Hyperparameters that GGUF files have under the same name, behind the architecture's.
const SAME: &[&str] = &[
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.dimension_count",
    "rope.freq_base",
    "expert_count",
    "expert_used_count",
    "expert_feed_forward_length",
    "expert_shared_feed_forward_length",
    "expert_weights_norm",
    "ssm.conv_kernel",
    "ssm.state_size",
    "ssm.group_count",
    "ssm.time_step_rank",
    "ssm.inner_size",
];

/// The same for rotary scaling of the two kinds that are keys everywhere.
const ROPE_SCALING: &[&str] = &[
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
];

/// Keys outside the hyperparameters.
const GENERAL: &[&str] = &[
    "general.sampling.temp",
    "general.sampling.top_k",
    "general.sampling.top_p",
    "general.sampling.min_p",
    "general.sampling.penalty_repeat",
];

/// Keys that are floats in GGUF files, though a `config.json` may spell them as integers.
const FLOATS: &[&str] = &[
    "attention.layer_norm_rms_epsilon",
    "attention.scale",
    "attn_logit_softcapping",
    "final_logit_softcapping",
    "rope.freq_base",
    "rope.freq_base_swa",
    "rope.scaling.factor",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "general.sampling.temp",
    "general.sampling.top_p",
    "general.sampling.min_p",
    "general.sampling.penalty_repeat",
];

/// Rotated numbers of a head; more are a mistake.
const MAX_ROTATED: usize = 1 << 14;

/// The keys of a model without those of its tokenizer, and what the user should know.
///
/// # Errors
/// If a key cannot be said in a GGUF file.
pub(super) fn entries(checkpoint: &Checkpoint) -> Result<(Vec<Entry>, Vec<String>), Error> {
    let (m, architecture) = (&checkpoint.metadata, checkpoint.architecture.as_str());
    let mut entries =
        vec![Entry::new("general.architecture", architecture), Entry::new("general.type", "model")];
    if let Some(name) = checkpoint.path.canonicalize().unwrap_or_default().file_name() {
        entries.push(Entry::new("general.name", name.to_string_lossy().as_ref()));
    }
    let scaling = match m.find_text("rope.scaling.type")? {
        Some("linear" | "yarn") => ROPE_SCALING,
        _ => &[],
    };
    let same = SAME.iter().chain(scaling).filter_map(|key| Some(entry(architecture, key, m.get(key)?)));
    entries.extend(same);
    entries.extend(derived(m, architecture)?);
    entries.extend(GENERAL.iter().filter_map(|key| Some(typed((*key).to_owned(), key, m.get(key)?))));

    let own: Vec<&str> = unsaid(m, architecture, &entries)?;
    let prefix = format!("{architecture}.");
    entries.retain(|e| !e.key.strip_prefix(&prefix).is_some_and(|key| own.contains(&key)));
    entries.extend(own.iter().filter_map(|key| Some(entry(architecture, key, m.get(key)?))));
    let still = unsaid(m, architecture, &entries)?;
    let path = checkpoint.path.display();
    if let Some(key) = still.first() {
        let value = m.get(key).map_or(String::new(), Value::to_string);
        let what = format!("key `{key}`: a GGUF file of the architecture {architecture} cannot say {value}");
        return Err(Error::new(Kind::Load, format!("{path}: {what}")));
    }
    let warnings = match own.is_empty() {
        true => vec![],
        false => {
            vec![format!("{path}: other programs may not know these keys of the output: {}", own.join(", "))]
        }
    };
    Ok((entries, warnings))
}

/// What the rotary frequencies are divided by, for the kind of scaling that GGUF files hold as a tensor.
///
/// # Errors
/// If a parameter is missing, or more numbers are rotated than a head can have.
pub(super) fn rope_factors(m: &Metadata) -> Result<Option<Vec<f32>>, Error> {
    if !is_llama3(m)? {
        return Ok(None);
    }
    let number = |key: &str| m.f32(key).map(f64::from);
    let (base, factor) = (number("rope.freq_base")?, number("rope.scaling.factor")?);
    let original = m.usize("rope.scaling.original_context_length")?;
    let low = m.f32_or("rope.scaling.low_freq_factor", 1.0).map(f64::from)?;
    let high = m.f32_or("rope.scaling.high_freq_factor", 4.0).map(f64::from)?;
    let width = m.usize("rope.dimension_count")?;
    if width > MAX_ROTATED {
        let what = format!("key `rope.dimension_count`: expected at most {MAX_ROTATED}, found {width}");
        return Err(Error::new(Kind::Load, what));
    }
    let frequencies = |scaling| {
        let layout = RopeLayout::Split; // no matter: frequencies are of pairs
        RopeConfig { head_dim: width, dims: width, layout, base, scaling }.frequencies()
    };
    let stretched = frequencies(Scaling::Llama3 { factor, original, low, high });
    let divisors = frequencies(Scaling::None).into_iter().zip(stretched).map(|(f, slow)| (f / slow) as f32);
    Ok(Some(divisors.collect()))
}

fn is_llama3(m: &Metadata) -> Result<bool, Error> {
    Ok(m.find_text("rope.scaling.type")? == Some("llama3"))
}

/// Keys that say the same as canonical ones in another way.
fn derived(m: &Metadata, architecture: &str) -> Result<Vec<Entry>, Error> {
    let mut entries = vec![];
    if let (Some(types), true) = (m.find_texts("attention.layer_types")?, m.get("ssm.conv_kernel").is_some())
    {
        let first_full = types.iter().position(|t| t == "full").unwrap_or(types.len());
        entries.push(entry(architecture, "full_attention_interval", &Value::from(first_full + 1)));
    }
    if let Some(base) = m.get("rope.local.freq_base") {
        entries.push(entry(architecture, "rope.freq_base_swa", base));
    }
    if let Some(sections) = m.find_ints("rope.dimension_sections")? {
        let mut sections = sections.to_vec();
        sections.resize(sections.len().max(4), 0); // readers expect four
        entries.push(entry(architecture, "rope.dimension_sections", &Value::Ints(sections)));
    }
    if m.find_text("rope.scaling.type")? == Some("yarn") {
        let factor = f64::from(m.f32("rope.scaling.factor")?);
        let usual = yarn_magnitude(factor, 1.0);
        let times = f64::from(m.f32_or("rope.scaling.attn_factor", usual as f32)?) / usual;
        if (times - 1.0).abs() > 1e-6 {
            entries.push(entry(architecture, "rope.scaling.attn_factor", &Value::from(times)));
        }
    }
    Ok(entries)
}

fn entry(architecture: &str, key: &str, value: &Value) -> Entry {
    typed(format!("{architecture}.{key}"), key, value)
}

fn typed(full: String, key: &str, value: &Value) -> Entry {
    match value {
        Value::Int(n) if FLOATS.contains(&key) => Entry::new(full, *n as f64),
        _ if key == "general.sampling.top_k" => {
            Entry { value_type: ValueType::I32, ..Entry::new(full, value.clone()) }
        }
        _ => Entry::new(full, value.clone()),
    }
}

/// The keys whose values a reader of `entries` would not get.
fn unsaid<'a>(m: &'a Metadata, architecture: &str, entries: &[Entry]) -> Result<Vec<&'a str>, Error> {
    let mut file = vec![];
    gguf::write_to(&mut file, entries, vec![])?;
    let read =
        nibble_format::open_bytes(file.into(), "the keys of the output", &Registry::default())?.metadata;
    let llama3 = is_llama3(m)?;
    let settled = |key: &str, value: &Value| match key {
        "tie_word_embeddings" | "rope.dimension_sections" => true, // a tensor says it; padded
        "rope.layout" => architecture == "llama",                  // rows are reordered
        "ssm.v_order" => architecture != "qwen3next",              // the same
        "rope.scaling.truncate" => *value == Value::Bool(true),
        "attention.layer_types" if read.get(key).is_none() => {
            matches!(value, Value::Texts(types) if types.iter().all(|t| t == "full"))
        }
        _ => {
            key.starts_with("general.")
                || key.starts_with("tokenizer.")
                || (llama3 && key.starts_with("rope.scaling."))
        }
    };
    let differs =
        |key: &str, value: &Value| !settled(key, value) && !read.get(key).is_some_and(|r| same(value, r));
    Ok(m.values.iter().filter(|(key, value)| differs(key, value)).map(|(key, _)| key.as_str()).collect())
}

/// Equal up to the rounding of floats to f32.
fn same(a: &Value, b: &Value) -> bool {
    let number = |value: &Value| match value {
        Value::Int(n) => Some(*n as f64),
        Value::Float(x) => Some(*x),
        _ => None,
    };
    match (number(a), number(b)) {
        (Some(a), Some(b)) => (a - b).abs() <= 1e-6 * a.abs().max(b.abs()),
        _ => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(architecture: &str, more: &[(&str, Value)]) -> Checkpoint {
        let mut m = Metadata::default();
        m.set("general.architecture", architecture);
        for (key, value) in [("block_count", 2), ("embedding_length", 64), ("attention.head_count", 4)] {
            m.set(key, value as u32);
        }
        m.set("rope.layout", "split");
        m.set("rope.freq_base", 1_000_000u32);
        more.iter().for_each(|(key, value)| m.set(key, value.clone()));
        Checkpoint { architecture: architecture.into(), metadata: m, ..Checkpoint::default() }
    }

    #[test]
    fn integers_of_a_config_become_the_floats_that_readers_expect() {
        let (entries, warnings) = entries(&checkpoint("qwen2", &[])).unwrap();
        let base = entries.iter().find(|e| e.key == "qwen2.rope.freq_base").unwrap();
        assert_eq!((base.value_type, &base.value), (ValueType::F32, &Value::Float(1e6)));
        assert!(warnings.is_empty(), "{warnings:?}");
    }

    #[test]
    fn what_the_architecture_does_not_imply_is_said_and_told() {
        let (entries, warnings) = entries(&checkpoint("qwen2", &[("attention.scale", 0.5.into())])).unwrap();
        assert!(entries.iter().any(|e| e.key == "qwen2.attention.scale" && e.value == Value::Float(0.5)));
        assert!(warnings[0].ends_with("of the output: attention.scale"), "{warnings:?}");
        let (_, none) = super::entries(&checkpoint("qwen2", &[("attention.scale", 0.25.into())])).unwrap();
        assert!(none.is_empty(), "{none:?}"); // 1 / sqrt(16) is what a reader takes anyway
    }

    #[test]
    fn yarn_keeps_its_magnitude() {
        let yarn = [
            ("rope.scaling.type", Value::from("yarn")),
            ("rope.scaling.factor", 4.0.into()),
            ("rope.scaling.attn_factor", 1.5.into()),
            ("rope.scaling.truncate", true.into()),
        ];
        let (entries, warnings) = entries(&checkpoint("qwen3", &yarn)).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        let Some(Value::Float(times)) =
            entries.iter().find(|e| e.key == "qwen3.rope.scaling.attn_factor").map(|e| &e.value)
        else {
            panic!("no attn_factor")
        };
        assert!((times * (0.1 * 4f64.ln() + 1.0) - 1.5).abs() < 1e-6);
    }

    #[test]
    fn llama3_scaling_becomes_a_tensor_of_divisors() {
        let c = checkpoint(
            "llama",
            &[
                ("rope.dimension_count", 16u32.into()),
                ("rope.scaling.type", "llama3".into()),
                ("rope.scaling.factor", 8.0.into()),
                ("rope.scaling.low_freq_factor", 1.0.into()),
                ("rope.scaling.high_freq_factor", 4.0.into()),
                ("rope.scaling.original_context_length", 8192u32.into()),
            ],
        );
        let factors = rope_factors(&c.metadata).unwrap().unwrap();
        assert_eq!((factors.len(), factors[0], factors[7]), (8, 1.0, 8.0));
        assert!(factors.is_sorted());
        let (entries, _) = entries(&c).unwrap();
        assert!(!entries.iter().any(|e| e.key.contains("scaling")));

        let mut huge = c.metadata;
        huge.set("rope.dimension_count", usize::MAX);
        assert!(rope_factors(&huge).unwrap_err().to_string().contains("rope.dimension_count"));
    }
}
