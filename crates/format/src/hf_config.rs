//! `config.json` and `generation_config.json` of Hugging Face checkpoints -> canonical keys.
//!
//! Both ways to write rotary settings are read: `rope_theta` with `rope_scaling`, and `rope_parameters`, which may
//! hold one set for each kind of layer. The text part of a multimodal model (`text_config`) counts as the model. A key
//! that is absent has the default of the model's class in transformers; one that is null has none.

use crate::{
    Error, Metadata, Problem, Value,
    keys::{self, every, yarn_magnitude},
};
use serde_json::{Map, Value as Json, json};
use std::collections::HashSet;

/// Names of a model in `architectures` (without `ForCausalLM` and the like) and `model_type`, and the canonical one.
static ARCHITECTURES: &[(&str, &str, &str)] = &[
    ("Llama", "llama", "llama"),
    ("Mistral", "mistral", "llama"),
    ("Qwen2", "qwen2", "qwen2"),
    ("Qwen3", "qwen3", "qwen3"),
    ("Qwen3Moe", "qwen3_moe", "qwen3moe"),
    ("BitNet", "bitnet", "bitnet"),
    ("Gemma2", "gemma2", "gemma2"),
    ("Gemma3", "gemma3_text", "gemma3"),
    ("Gemma3", "gemma3", "gemma3"),
    ("GptOss", "gpt_oss", "gpt-oss"),
    ("Qwen3_5", "qwen3_5_text", "qwen35"),
    ("Qwen3_5", "qwen3_5", "qwen35"),
    ("Qwen3_5Moe", "qwen3_5_moe_text", "qwen35moe"),
    ("Qwen3_5Moe", "qwen3_5_moe", "qwen35moe"),
    ("Qwen3Next", "qwen3_next", "qwen3next"),
];

/// Keys that keep their value, and their canonical names.
static SAME_VALUE: &[(&str, &str)] = &[
    ("num_hidden_layers", "block_count"),
    ("max_position_embeddings", "context_length"),
    ("hidden_size", "embedding_length"),
    ("intermediate_size", "feed_forward_length"),
    ("num_attention_heads", "attention.head_count"),
    ("num_key_value_heads", "attention.head_count_kv"),
    ("head_dim", "attention.key_length"),
    ("rms_norm_eps", "attention.layer_norm_rms_epsilon"),
    ("attn_logit_softcapping", "attn_logit_softcapping"),
    ("final_logit_softcapping", "final_logit_softcapping"),
    ("vocab_size", "vocab_size"),
    ("tie_word_embeddings", "tie_word_embeddings"),
    ("hidden_act", "hidden_act"),
    ("hidden_activation", "hidden_act"),
    ("num_experts", "expert_count"),
    ("num_local_experts", "expert_count"),
    ("num_experts_per_tok", "expert_used_count"),
    ("swiglu_alpha", "swiglu_alpha"),
    ("swiglu_limit", "swiglu_limit"),
    ("moe_intermediate_size", "expert_feed_forward_length"),
    ("shared_expert_intermediate_size", "expert_shared_feed_forward_length"),
    ("norm_topk_prob", "expert_weights_norm"),
    ("linear_conv_kernel_dim", "ssm.conv_kernel"),
    ("linear_key_head_dim", "ssm.state_size"),
    ("linear_num_key_heads", "ssm.group_count"),
    ("linear_num_value_heads", "ssm.time_step_rank"),
    ("bos_token_id", "tokenizer.ggml.bos_token_id"),
    ("pad_token_id", "tokenizer.ggml.padding_token_id"),
];

/// A parsed configuration.
pub(crate) struct Config {
    /// The canonical name of the architecture, or the `model_type` if it is not known here.
    pub architecture: String,
    /// Whether norm weights are stored minus one.
    pub norms_minus_one: bool,
    /// The whole of `config.json`.
    pub root: Map<String, Json>,
    /// The text part.
    text: Map<String, Json>,
}

impl Config {
    /// Reads `config.json`.
    ///
    /// # Errors
    /// If it is not a JSON object that names a model.
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        let root: Map<String, Json> =
            serde_json::from_slice(bytes).map_err(|e| Problem::Json(e).at("config.json"))?;
        let mut text = match root.get("text_config") {
            Some(Json::Object(text)) => text.clone(),
            _ => root.clone(),
        };
        for key in ["tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id"] {
            if let (false, Some(value)) = (text.contains_key(key), root.get(key)) {
                text.insert(key.to_owned(), value.clone());
            }
        }
        let (architecture, class) = architecture(&root, &text)?;
        for (key, value) in defaults(class) {
            text.entry(key).or_insert(value);
        }
        let norms_minus_one = ["gemma", "gemma2", "gemma3", "qwen35", "qwen35moe", "qwen3next"]
            .contains(&architecture.as_str());
        Ok(Self { architecture, norms_minus_one, root, text })
    }

    /// The canonical keys. `generation`: the text of `generation_config.json`.
    ///
    /// # Errors
    /// One that names the key whose value is not what it must be.
    pub fn metadata(&self, generation: Option<&[u8]>) -> Result<Metadata, Error> {
        let mut m = Metadata::default();
        m.set("general.architecture", self.architecture.as_str());
        for (from, to) in SAME_VALUE {
            if let Some(value) = scalar(&self.text, from)? {
                m.set(to, value);
            }
        }
        if let (Some(heads), Some(width)) =
            (self.find::<u64>("linear_num_value_heads")?, self.find::<u64>("linear_value_head_dim")?)
        {
            m.set(
                "ssm.inner_size",
                heads.checked_mul(width).ok_or_else(|| overflow("linear_value_head_dim"))?,
            );
            m.set("ssm.v_order", "grouped");
        }
        if let Some(scalar) = self.find::<f64>("query_pre_attn_scalar")?.filter(|&s| s > 0.0) {
            m.set("attention.scale", scalar.powf(-0.5));
        }
        keys::check_layers(&m).map_err(in_config)?;
        self.layers(&mut m)?;
        self.rope(&mut m)?;
        self.tokens(&mut m, generation)?;
        keys::complete(&mut m).map_err(in_config)?;
        Ok(m)
    }

    /// What differs from layer to layer.
    fn layers(&self, m: &mut Metadata) -> Result<(), Error> {
        let layers = m.usize("block_count").map_err(in_config)?;
        let window = match self.find::<bool>("use_sliding_window")? {
            Some(false) => None,
            _ => self.find::<u64>("sliding_window")?,
        };
        if let Some(window) = window {
            m.set("attention.sliding_window", window);
        }
        let types = match self.text.get("layer_types") {
            Some(Json::Array(list)) => self.layer_types(list, layers)?,
            _ => match self.architecture.as_str() {
                "gemma2" | "gpt-oss" => every(layers, 2, "sliding"),
                "gemma3" => every(layers, self.find("sliding_window_pattern")?.unwrap_or(6), "sliding"),
                "qwen35" | "qwen35moe" | "qwen3next" => {
                    every(layers, self.find("full_attention_interval")?.unwrap_or(4), "linear")
                }
                "qwen2" | "qwen3" => {
                    let first = self.find::<usize>("max_window_layers")?.unwrap_or(28);
                    (0..layers).map(|i| if i >= first { "sliding" } else { "full" }.to_owned()).collect()
                }
                _ => vec![if window.is_some() { "sliding" } else { "full" }.to_owned(); layers],
            },
        };
        m.set("attention.layer_types", types);
        if m.usize_or("expert_count", 0).map_err(in_config)? > 0 {
            if let Some(width) = m.get("feed_forward_length").cloned() {
                m.set_default("expert_feed_forward_length", width); // where no expert differs from the others
            }
            let dense: HashSet<usize> = self.find("mlp_only_layers")?.unwrap_or_default();
            let step = self.find::<usize>("decoder_sparse_step")?.unwrap_or(1).max(1);
            let sparse = |layer: usize| !dense.contains(&layer) && (layer + 1).is_multiple_of(step);
            m.set("expert_layers", (0..layers).map(sparse).collect::<Vec<bool>>());
        }
        Ok(())
    }

    fn layer_types(&self, list: &[Json], layers: usize) -> Result<Vec<String>, Error> {
        let texts: Option<Vec<&str>> = list.iter().map(Json::as_str).collect();
        match texts {
            Some(texts) if texts.len() == layers => {
                Ok(texts.iter().map(|t| t.strip_suffix("_attention").unwrap_or(t).to_owned()).collect())
            }
            _ => {
                let expected = format!("{layers} texts, one a layer");
                Err(in_config(
                    Problem::expected(expected, format!("{} values", list.len())).at("key `layer_types`"),
                ))
            }
        }
    }

    fn rope(&self, m: &mut Metadata) -> Result<(), Error> {
        let empty = Map::new();
        let given =
            ["rope_parameters", "rope_scaling"].iter().find_map(|key| self.text.get(*key)?.as_object());
        let given = given.unwrap_or(&empty);
        let by_layer = |kind: &str| given.get(kind).and_then(Json::as_object);
        let rope = by_layer("full_attention").unwrap_or(given);
        let theta = number(rope, "rope_theta")?.or(self.find("rope_theta")?);
        m.set("rope.layout", "split");
        m.set("rope.freq_base", theta.unwrap_or(if self.architecture == "gemma3" { 1e6 } else { 1e4 }));
        if self.architecture == "gemma3" {
            let own = by_layer("sliding_attention");
            if let Some(kind) = own.and_then(rope_type) {
                let what =
                    format!("rotary scaling of kind {kind:?} in layers with a window is not supported");
                return Err(in_config(Problem::Unsupported(what).at("key `rope_parameters`")));
            }
            let own = own.map(|own| number(own, "rope_theta")).transpose()?.flatten();
            m.set("rope.local.freq_base", own.or(self.find("rope_local_base_freq")?).unwrap_or(1e4));
        }
        let part = number(rope, "partial_rotary_factor")?.or(self.find("partial_rotary_factor")?);
        if let (Some(part), Some(head)) =
            (part, m.find_int::<u32>("attention.key_length").map_err(in_config)?)
        {
            m.set("rope.dimension_count", (part * f64::from(head)) as u64);
        }
        if let Some(sections) = rope.get("mrope_section") {
            m.set("rope.dimension_sections", typed::<Vec<i64>>("mrope_section", sections)?);
        }
        match rope_type(rope) {
            Some(kind) => self.rope_scaling(m, rope, kind),
            None => Ok(()),
        }
    }

    fn rope_scaling(&self, m: &mut Metadata, rope: &Map<String, Json>, kind: &str) -> Result<(), Error> {
        const NUMBERS: &[(&str, &str)] = &[
            ("factor", "factor"),
            ("original_max_position_embeddings", "original_context_length"),
            ("low_freq_factor", "low_freq_factor"),
            ("high_freq_factor", "high_freq_factor"),
            ("beta_fast", "yarn_beta_fast"),
            ("beta_slow", "yarn_beta_slow"),
            ("attention_factor", "attn_factor"),
        ];
        m.set("rope.scaling.type", kind);
        for (from, to) in NUMBERS {
            if let Some(value) = scalar(rope, from)? {
                m.set(&format!("rope.scaling.{to}"), value);
            }
        }
        for key in ["short_factor", "long_factor"] {
            if let Some(list) = rope.get(key) {
                m.set(&format!("rope.scaling.{key}"), typed::<Vec<f32>>(key, list)?);
            }
        }
        if ["llama3", "yarn", "longrope"].contains(&kind) {
            let length = "rope.scaling.original_context_length";
            if let Some(value) = scalar(&self.text, "original_max_position_embeddings")? {
                m.set(length, value);
            } else if let Some(value) = m.get("context_length").cloned() {
                m.set_default(length, value);
            }
        }
        if kind == "yarn" {
            self.yarn(m, rope)?;
        }
        Ok(())
    }

    fn yarn(&self, m: &mut Metadata, rope: &Map<String, Json>) -> Result<(), Error> {
        if m.get("rope.scaling.factor").is_none() {
            let (long, short) = (m.f32("context_length"), m.f32("rope.scaling.original_context_length"));
            m.set("rope.scaling.factor", long.map_err(in_config)? / short.map_err(in_config)?);
        }
        let factor = f64::from(m.f32("rope.scaling.factor").map_err(in_config)?);
        let mscale = number(rope, "mscale")?.filter(|&s| s != 0.0);
        let magnitude = match (mscale, number(rope, "mscale_all_dim")?.filter(|&s| s != 0.0)) {
            (Some(mscale), Some(all)) => yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all),
            _ => yarn_magnitude(factor, 1.0),
        };
        m.set_default("rope.scaling.attn_factor", magnitude);
        if let Some(truncate) = rope.get("truncate").and_then(Json::as_bool) {
            m.set("rope.scaling.truncate", truncate);
        }
        keys::yarn_defaults(m);
        Ok(())
    }

    /// Ids that end an answer, and the sampling that the publisher recommends.
    fn tokens(&self, m: &mut Metadata, generation: Option<&[u8]>) -> Result<(), Error> {
        const SAMPLING: &[(&str, &str)] = &[
            ("temperature", "general.sampling.temp"),
            ("top_k", "general.sampling.top_k"),
            ("top_p", "general.sampling.top_p"),
            ("min_p", "general.sampling.min_p"),
            ("repetition_penalty", "general.sampling.penalty_repeat"),
        ];
        let place = |e: Error| e.within("generation_config.json");
        let generation: Map<String, Json> = match generation {
            Some(bytes) => {
                serde_json::from_slice(bytes).map_err(|e| place(Problem::Json(e).at("all of it")))?
            }
            None => Map::new(),
        };
        for (from, to) in SAMPLING {
            if let Some(value) = scalar(&generation, from).map_err(place)? {
                m.set(to, value);
            }
        }
        let ids = |map: &Map<String, Json>| match map.get("eos_token_id") {
            None | Some(Json::Null) => Ok(None),
            Some(Json::Array(list)) => typed("eos_token_id", &Json::Array(list.clone())).map(Some),
            Some(one) => typed("eos_token_id", one).map(|id| Some(vec![id])),
        };
        let ids: Option<Vec<u32>> = match ids(&generation).map_err(place)? {
            Some(ids) => Some(ids),
            None => ids(&self.text)?,
        };
        if let Some(ids) = ids.filter(|ids| !ids.is_empty()) {
            m.set("tokenizer.ggml.eos_token_id", ids[0]);
            m.set("tokenizer.ggml.eos_token_ids", ids.into_iter().map(i64::from).collect::<Vec<i64>>());
        }
        Ok(())
    }

    fn find<T: serde::de::DeserializeOwned>(&self, key: &str) -> Result<Option<T>, Error> {
        match self.text.get(key) {
            None | Some(Json::Null) => Ok(None),
            Some(value) => typed(key, value).map(Some),
        }
    }
}

fn in_config(error: Error) -> Error {
    error.within("config.json")
}

fn overflow(key: &str) -> Error {
    in_config(Problem::Overflow.at(format!("key `{key}`")))
}

/// Canonical name and class of a model.
fn architecture(root: &Map<String, Json>, text: &Map<String, Json>) -> Result<(String, &'static str), Error> {
    let class = root.get("architectures").and_then(|list| list.get(0)?.as_str());
    let class = class.map(|class| class.split("For").next().unwrap_or(class));
    let model_type = [text, root].into_iter().find_map(|map| map.get("model_type")?.as_str());
    let by_class = || ARCHITECTURES.iter().find(|(name, ..)| Some(*name) == class);
    let by_type = || ARCHITECTURES.iter().find(|(_, name, _)| Some(*name) == model_type);
    match (by_type().or_else(by_class), model_type.or(class)) {
        (Some((class, _, canonical)), _) => Ok(((*canonical).to_owned(), class)),
        (None, Some(other)) => Ok((other.to_owned(), "")),
        (None, None) => Err(in_config(Problem::Missing("text".into()).at("key `model_type`"))),
    }
}

/// What a class of transformers assumes for absent keys: nested configurations leave out what is the default.
fn defaults(class: &str) -> Map<String, Json> {
    let values = match class {
        "Llama" => json!({"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "vocab_size": 32000, "max_position_embeddings": 2048}),
        "Mistral" => json!({"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "num_key_value_heads": 8, "sliding_window": 4096, "vocab_size": 32000,
            "max_position_embeddings": 131_072}),
        "Qwen2" => json!({"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "use_sliding_window": false, "sliding_window": 4096, "num_key_value_heads": 32}),
        "Qwen3" => json!({"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "head_dim": 128, "use_sliding_window": false, "sliding_window": 4096, "num_key_value_heads": 32}),
        "Qwen3Moe" => json!({"hidden_act": "silu", "rms_norm_eps": 1e-6, "tie_word_embeddings": false,
            "use_sliding_window": false, "sliding_window": 4096, "num_key_value_heads": 4, "num_experts": 128,
            "num_experts_per_tok": 8, "moe_intermediate_size": 768, "norm_topk_prob": false}),
        "BitNet" => json!({"hidden_act": "relu2", "rms_norm_eps": 1e-5, "tie_word_embeddings": false,
            "num_key_value_heads": 5, "vocab_size": 128_256, "max_position_embeddings": 2048,
            "rope_theta": 500_000.0}),
        "GptOss" => json!({"rms_norm_eps": 1e-5, "tie_word_embeddings": false, "num_hidden_layers": 36,
            "num_local_experts": 128, "num_experts_per_tok": 4, "hidden_size": 2880, "intermediate_size": 2880,
            "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
            "max_position_embeddings": 131_072, "swiglu_alpha": 1.702, "swiglu_limit": 7.0,
            "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0,
                "truncate": false, "original_max_position_embeddings": 4096, "rope_theta": 150_000.0}}),
        "Gemma2" => {
            json!({"hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "vocab_size": 256_000,
            "tie_word_embeddings": true, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 8192,
            "query_pre_attn_scalar": 256, "sliding_window": 4096, "final_logit_softcapping": 30.0,
            "attn_logit_softcapping": 50.0})
        }
        "Gemma3" => {
            json!({"hidden_activation": "gelu_pytorch_tanh", "rms_norm_eps": 1e-6, "vocab_size": 262_208,
            "tie_word_embeddings": true, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
            "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
            "max_position_embeddings": 131_072, "query_pre_attn_scalar": 256, "sliding_window": 4096})
        }
        "Qwen3_5" | "Qwen3_5Moe" | "Qwen3Next" => json!({"hidden_act": "silu", "rms_norm_eps": 1e-6,
            "tie_word_embeddings": false, "head_dim": 256, "partial_rotary_factor": 0.25,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
            "linear_num_key_heads": 16, "linear_num_value_heads": 32}),
        _ => json!({}),
    };
    match values {
        Json::Object(map) => map,
        _ => Map::new(),
    }
}

/// The kind of rotary scaling, if there is one.
fn rope_type(rope: &Map<String, Json>) -> Option<&str> {
    let kind = rope.get("rope_type").or_else(|| rope.get("type"))?.as_str()?;
    // `mrope` gives images three positions; text has one
    (!["default", "mrope"].contains(&kind)).then_some(kind)
}

fn number(map: &Map<String, Json>, key: &str) -> Result<Option<f64>, Error> {
    match map.get(key) {
        None | Some(Json::Null) => Ok(None),
        Some(value) => typed(key, value).map(Some),
    }
}

fn typed<T: serde::de::DeserializeOwned>(key: &str, value: &Json) -> Result<T, Error> {
    T::deserialize(value).map_err(|e| in_config(Problem::Json(e).at(format!("key `{key}`"))))
}

/// A number, a boolean or a text; `None` if it is absent or null.
fn scalar(map: &Map<String, Json>, key: &str) -> Result<Option<Value>, Error> {
    Ok(Some(match map.get(key) {
        None | Some(Json::Null) => return Ok(None),
        Some(Json::Bool(b)) => Value::Bool(*b),
        Some(Json::String(text)) => Value::Text(text.clone()),
        Some(Json::Number(n)) => match (n.as_i64(), n.as_u64(), n.as_f64()) {
            (Some(n), ..) => Value::Int(n.into()),
            (_, Some(n), _) => Value::Int(n.into()),
            (.., x) => Value::Float(x.unwrap_or(f64::NAN)),
        },
        Some(Json::Array(_) | Json::Object(_)) => {
            return Err(in_config(Problem::expected("one value", "several").at(format!("key `{key}`"))));
        }
    }))
}
