//! Canonical keys: those of GGUF without the architecture's prefix, and the following, which every container gets.
//!
//! | key | meaning |
//! |---|---|
//! | `block_count` | layers of the model itself, without those that only draft tokens |
//! | `attention.layer_types` | texts, one a layer: `full`, `sliding` (`attention.sliding_window` positions, the query's own among them), `linear` |
//! | `attention.scale` | what scores are multiplied by |
//! | `attention.key_length`, `attention.value_length`, `attention.head_count_kv` | always there |
//! | `rope.layout` | `split` (i with i + half) or `interleaved` (2i with 2i + 1) |
//! | `rope.dimension_count` | numbers of a head that are rotated |
//! | `rope.freq_base` | always there; `rope.local.freq_base`: of `sliding` layers, unscaled, if they have their own |
//! | `rope.scaling.type` | `linear`, `dynamic`, `yarn`, `llama3`, `longrope`; absent if none |
//! | `rope.scaling.attn_factor` | `yarn`: what q and k are multiplied by, all in all |
//! | `rope.scaling.low_freq_factor`, `.high_freq_factor` | `llama3` |
//! | `rope.scaling.yarn_beta_fast`, `.yarn_beta_slow`, `.original_context_length` | `yarn`: always there |
//! | `rope.scaling.truncate` | `yarn`: whether the ends of its ramp are whole numbers |
//! | `rope.scaling.short_factor`, `.long_factor` | `longrope`: floats |
//! | `hidden_act` | `silu`, `gelu_pytorch_tanh`, ... as Hugging Face spells it |
//! | `expert_layers` | booleans, one a layer: has experts; absent if there are none |
//! | `expert_weights_norm` | whether the weights of the chosen experts are made to sum to 1 |
//! | `swiglu_alpha`, `swiglu_limit` | gpt-oss: what its gates were trained with |
//! | `vocab_size` | rows of the embedding |
//! | `tie_word_embeddings` | whether the head is the embedding; what counts is whether the tensor `head` is there |
//! | `ssm.conv_kernel`, `.state_size`, `.group_count`, `.time_step_rank`, `.inner_size` | gated delta net: kernel, width of a key head, key heads, value heads, width of all value heads |
//! | `ssm.v_order` | which key head value head i has: `grouped` (i / (Hv / Hk)) or `tiled` (i % Hk) |
//! | `rotation.block_size` | the block of the Hadamard transform of matrices with `.rotate` or `.unrotate` |
//! | `quantization.activation_bits` | BitNet: what the inputs of ternary matrices were rounded to in training, row by row |
//! | `tokenizer.ggml.eos_token_ids` | integers: every token that ends an answer |

use crate::{Error, Metadata, Problem, Value};

/// More layers than any model has; a bound for what is allocated by layer.
const MAX_LAYERS: usize = 4096;

/// Adds to the keys of a GGUF file what its architecture leaves unsaid. `vocab`: rows of the embedding.
pub(crate) fn complete_gguf(m: &mut Metadata, architecture: &str, vocab: Option<usize>) -> Result<(), Error> {
    if let Some(layers) = m.find_int::<usize>("block_count")? {
        let drafting = m.usize_or("nextn_predict_layers", 0)?;
        let own = layers.checked_sub(drafting).ok_or_else(|| {
            Problem::expected(format!("at most {layers} layers"), drafting).at("key `nextn_predict_layers`")
        })?;
        m.set("block_count", own);
        check_layers(m)?;
        gguf_layers(m, architecture, own)?;
    }
    if let Some(layout) = rope_layout(architecture) {
        m.set_default("rope.layout", layout);
    }
    gguf_rope(m, architecture)?;
    gguf_tokens(m)?;
    m.set_default("hidden_act", hidden_act(architecture));
    if architecture == "gpt-oss" {
        m.set_default("swiglu_alpha", 1.702);
        m.set_default("swiglu_limit", 7.0);
    }
    if architecture == "qwen3moe" || architecture == "qwen35moe" {
        m.set_default("expert_weights_norm", true);
    }
    match architecture {
        "qwen35" | "qwen35moe" => m.set_default("ssm.v_order", "tiled"),
        "qwen3next" => m.set_default("ssm.v_order", "grouped"),
        _ => {}
    }
    if let Some(vocab) = vocab {
        m.set_default("vocab_size", vocab);
    }
    complete(m)
}

/// Adds what follows from other keys, whatever the container.
pub(crate) fn complete(m: &mut Metadata) -> Result<(), Error> {
    check_layers(m)?;
    if let Some(heads) = m.get("attention.head_count").cloned() {
        m.set_default("attention.head_count_kv", heads);
    }
    if let (Some(Value::Int(_)), Some(width)) =
        (m.get("attention.head_count"), m.find_int::<usize>("embedding_length")?)
    {
        let heads = m.usize("attention.head_count")?;
        if let Some(head) = width.checked_div(heads) {
            m.set_default("attention.key_length", head);
        }
    }
    if let Some(head) = m.find_int::<usize>("attention.key_length")? {
        m.set_default("attention.value_length", head);
        m.set_default("rope.dimension_count", head);
        if head > 0 {
            m.set_default("attention.scale", 1.0 / (head as f64).sqrt());
        }
    }
    m.set_default("rope.freq_base", 10000.0);
    complete_layer_types(m)
}

/// How the numbers of a head are paired for rotation in the GGUF files of an architecture: converters permuted the
/// rows of q and k of some.
fn rope_layout(architecture: &str) -> Option<&'static str> {
    const INTERLEAVED: &[&str] =
        &["llama", "llama4", "deci", "mistral3", "smollm3", "granite", "granitemoe", "arcee"];
    const SPLIT: &[&str] = &["qwen", "gemma", "bitnet", "phi", "gpt-oss", "olmo2", "stablelm", "exaone"];
    if INTERLEAVED.contains(&architecture) {
        return Some("interleaved");
    }
    SPLIT.iter().any(|name| architecture.starts_with(name)).then_some("split")
}

/// The activation of an architecture, of which GGUF files say nothing. Files named `bitnet` hold the first such models;
/// those of Microsoft have names of their own.
fn hidden_act(architecture: &str) -> &'static str {
    match architecture {
        "bitnet-25" | "bitnet-b1.58" => "relu2",
        gemma if gemma.starts_with("gemma") => "gelu_pytorch_tanh",
        _ => "silu",
    }
}

fn gguf_layers(m: &mut Metadata, architecture: &str, layers: usize) -> Result<(), Error> {
    match architecture {
        "gemma2" | "gpt-oss" => m.set_default("attention.layer_types", every(layers, 2, "sliding")),
        "gemma3" => m.set_default("attention.layer_types", every(layers, 6, "sliding")),
        "qwen35" | "qwen35moe" | "qwen3next" => {
            let types = match m.find_bools("attention.recurrent_layers")? {
                Some(recurrent) if recurrent.len() >= layers => recurrent[..layers]
                    .iter()
                    .map(|&r| if r { "linear" } else { "full" }.to_owned())
                    .collect(),
                _ => every(layers, m.usize_or("full_attention_interval", 4)?, "linear"),
            };
            m.set_default("attention.layer_types", types);
        }
        "llama" if m.usize_or("attention.sliding_window", 0)? > 0 => {
            m.set_default("attention.layer_types", vec!["sliding".to_owned(); layers]);
        }
        _ => {}
    }
    if m.usize_or("expert_count", 0)? > 0 {
        let dense = m.usize_or("leading_dense_block_count", 0)?;
        m.set_default("expert_layers", (0..layers).map(|layer| layer >= dense).collect::<Vec<bool>>());
    }
    if architecture == "gemma2" || architecture == "gemma3" {
        gemma_scale(m, architecture, layers)?;
    }
    Ok(())
}

/// Files do not say it: the scale is that of a head, but of the hidden width over the heads in the largest models.
fn gemma_scale(m: &mut Metadata, architecture: &str, layers: usize) -> Result<(), Error> {
    let largest = if architecture == "gemma2" { 46 } else { 62 };
    let heads = m.usize_or("attention.head_count", 0)?;
    if layers == largest && heads > 0 {
        let width = m.usize("embedding_length")? / heads;
        m.set_default("attention.scale", 1.0 / (width as f64).sqrt());
    }
    Ok(())
}

fn gguf_rope(m: &mut Metadata, architecture: &str) -> Result<(), Error> {
    if architecture == "gemma3" {
        let local = m.find_f32("rope.freq_base_swa")?.unwrap_or(10000.0);
        m.set_default("rope.local.freq_base", local);
        m.set_default("rope.freq_base", 1e6);
    }
    if architecture == "gpt-oss" {
        m.set_default("rope.scaling.truncate", false); // files do not say it
    }
    if let Some(scale) = m.find_f32("rope.scale_linear")?.filter(|&s| s != 0.0) {
        m.set_default("rope.scaling.factor", scale);
        m.set_default("rope.scaling.type", "linear");
    }
    match m.find_text("rope.scaling.type")? {
        Some("none") => drop(m.values.remove("rope.scaling.type")),
        Some("yarn") => gguf_yarn(m)?,
        _ => {}
    }
    Ok(())
}

/// The magnitude: `yarn_attn_factor` if a converter wrote it, else by the usual rule; then times `attn_factor`.
fn gguf_yarn(m: &mut Metadata) -> Result<(), Error> {
    let factor = f64::from(m.f32("rope.scaling.factor")?);
    let magnitude = match m.find_f32("rope.scaling.yarn_attn_factor")? {
        Some(whole) => f64::from(whole),
        None => match m.f32_or("rope.scaling.yarn_log_multiplier", 0.0)? {
            0.0 => yarn_magnitude(factor, 1.0),
            all_dims => yarn_magnitude(factor, 1.0) / yarn_magnitude(factor, all_dims.into()),
        },
    };
    let times = f64::from(m.f32_or("rope.scaling.attn_factor", 1.0)?);
    m.set("rope.scaling.attn_factor", magnitude * times);
    yarn_defaults(m);
    Ok(())
}

/// The ends of the ramp of YaRN and the length it starts from, where they are not given.
pub(crate) fn yarn_defaults(m: &mut Metadata) {
    m.set_default("rope.scaling.yarn_beta_fast", 32.0);
    m.set_default("rope.scaling.yarn_beta_slow", 1.0);
    m.set_default("rope.scaling.truncate", true);
    if let Some(length) = m.get("context_length").cloned() {
        m.set_default("rope.scaling.original_context_length", length);
    }
}

/// What YaRN multiplies q and k by for a longer context.
pub(crate) fn yarn_magnitude(factor: f64, mscale: f64) -> f64 {
    if factor <= 1.0 { 1.0 } else { 0.1 * mscale * factor.ln() + 1.0 }
}

/// Checks lists against the vocabulary and ids against its size, and gathers the ids that end an answer.
fn gguf_tokens(m: &mut Metadata) -> Result<(), Error> {
    let Some(count) = m.find_texts("tokenizer.ggml.tokens")?.map(<[String]>::len) else { return Ok(()) };
    for key in ["tokenizer.ggml.scores", "tokenizer.ggml.token_type"] {
        let found = match m.get(key) {
            Some(Value::Floats(list)) => list.len(),
            Some(Value::Ints(list)) => list.len(),
            _ => continue,
        };
        if found != count {
            let expected = format!("{count} elements, one a token");
            return Err(Problem::expected(expected, found).at(format!("key `{key}`")));
        }
    }
    let mut ends: Vec<i64> = m.find_ints("tokenizer.ggml.eos_token_ids")?.unwrap_or(&[]).to_vec();
    for role in ["eos", "eot", "eom", "bos", "unknown", "padding"] {
        let key = format!("tokenizer.ggml.{role}_token_id");
        match m.find_int::<i64>(&key)? {
            Some(id) if (0..count as i64).contains(&id) => ends.extend(role.starts_with('e').then_some(id)),
            Some(_) if role == "padding" || role == "unknown" => drop(m.values.remove(&key)), // some writers put -1
            Some(id) => {
                let expected = format!("a token id below {count}");
                return Err(Problem::expected(expected, id).at(format!("key `{key}`")));
            }
            None => {}
        }
    }
    let mut seen = std::collections::HashSet::new();
    ends.retain(|id| seen.insert(*id));
    if !ends.is_empty() {
        m.set("tokenizer.ggml.eos_token_ids", ends);
    }
    Ok(())
}

/// `kind` for all layers but each `interval`-th, which is `full`.
pub(crate) fn every(layers: usize, interval: usize, kind: &str) -> Vec<String> {
    let full = |layer: usize| interval > 0 && (layer + 1).is_multiple_of(interval);
    (0..layers).map(|layer| if full(layer) { "full" } else { kind }.to_owned()).collect()
}

/// Refuses a number of layers that no model has.
pub(crate) fn check_layers(m: &Metadata) -> Result<(), Error> {
    match m.find_int::<usize>("block_count")? {
        Some(layers) if layers == 0 || layers > MAX_LAYERS => {
            Err(Problem::expected(format!("1 to {MAX_LAYERS} layers"), layers).at("key `block_count`"))
        }
        _ => Ok(()),
    }
}

/// Every layer sees everything unless it is said otherwise; so does one with a window that nobody gives a width.
fn complete_layer_types(m: &mut Metadata) -> Result<(), Error> {
    if let Some(layers) = m.find_int::<usize>("block_count")? {
        m.set_default("attention.layer_types", vec!["full".to_owned(); layers]);
    }
    let windowed = |t: &String| t == "sliding";
    let any = m.find_texts("attention.layer_types")?.is_some_and(|types| types.iter().any(windowed));
    if any
        && m.usize_or("attention.sliding_window", 0)? == 0
        && let Some(Value::Texts(types)) = m.values.get_mut("attention.layer_types")
    {
        types.iter_mut().filter(|t| windowed(t)).for_each(|t| *t = "full".to_owned());
    }
    Ok(())
}
