//! The names of tensors: one row a weight, with the name it has in each container.
//!
//! A canonical name is `embed`, `norm`, `head`, or `layer.N.` and the first column; a bias adds `.bias`, a factor that
//! multiplies the product of the matrix (f32, one for all or one per expert) adds `.scale`. Shapes are row-major,
//! outermost first, `[out, in]` for matrices.

/// One weight and its names. An empty name: the container does not have it.
pub(crate) struct Name {
    /// The name in this project.
    pub canonical: &'static str,
    /// In GGUF, after `blk.N.`, without `.weight`.
    pub gguf: &'static str,
    /// In Hugging Face checkpoints, after `model.layers.N.`, without `.weight`; `*` is the number of an expert.
    pub hf: &'static str,
    /// Only in these architectures; in all if empty.
    pub only: &'static [&'static str],
}

const fn name(canonical: &'static str, gguf: &'static str, hf: &'static str) -> Name {
    Name { canonical, gguf, hf, only: &[] }
}

const fn only(only: &'static [&'static str], row: Name) -> Name {
    Name { only, ..row }
}

const GEMMA: &[&str] = &["gemma2", "gemma3"];
const OSS: &[&str] = &["gpt-oss"];
const DELTA: &[&str] = &["qwen35", "qwen35moe", "qwen3next"];

/// Weights outside the layers.
pub(crate) static GLOBAL: &[Name] = &[
    name("embed", "token_embd", "embed_tokens"), // [V, D]
    name("embed.norm", "token_embd_norm", ""),   // [D]
    name("norm", "output_norm", "norm"),         // [D]
    name("head", "output", "lm_head"),           // [V, D]; absent if tied to `embed`
    name("rope.factors", "rope_freqs", ""),      // [rotated width / 2], divides the frequencies
    name("rope.factors_long", "rope_factors_long", ""),
    name("rope.factors_short", "rope_factors_short", ""),
];

/// Weights of a layer. Rows of some architectures come before the row for all.
pub(crate) static LAYER: &[Name] = &[
    only(GEMMA, name("attn.post_norm", "post_attention_norm", "post_attention_layernorm")), // [D]
    only(GEMMA, name("ffn.norm", "ffn_norm", "pre_feedforward_layernorm")),                 // [D]
    only(OSS, name("ffn.norm", "post_attention_norm", "post_attention_layernorm")),         // [D]
    only(DELTA, name("ffn.norm", "post_attention_norm", "post_attention_layernorm")),       // [D]
    only(DELTA, name("delta.qkv", "attn_qkv", "linear_attn.in_proj_qkv")), // [2 * Hk * dk + Hv * dv, D]
    only(DELTA, name("delta.z", "attn_gate", "linear_attn.in_proj_z")),    // [Hv * dv, D]
    name("attn.norm", "attn_norm", "input_layernorm"),                     // [D]
    name("attn.q", "attn_q", "self_attn.q_proj"), // [H * d, D]; gated attention: q and gate in turn, [H * 2 * d, D]
    name("attn.k", "attn_k", "self_attn.k_proj"), // [Hkv * d, D]
    name("attn.v", "attn_v", "self_attn.v_proj"), // [Hkv * d, D]
    name("attn.o", "attn_output", "self_attn.o_proj"), // [D, H * d]
    name("attn.qkv", "attn_qkv", "self_attn.qkv_proj"), // [(H + 2 * Hkv) * d, D]
    name("attn.q_norm", "attn_q_norm", "self_attn.q_norm"), // [d]
    name("attn.k_norm", "attn_k_norm", "self_attn.k_norm"), // [d]
    name("attn.sub_norm", "attn_sub_norm", "self_attn.attn_sub_norm"), // [H * d]
    name("attn.sinks", "attn_sinks", "self_attn.sinks"), // [H]
    name("attn.post_norm", "post_attention_norm", ""), // [D]
    name("ffn.norm", "ffn_norm", "post_attention_layernorm"), // [D]
    name("ffn.gate", "ffn_gate", "mlp.gate_proj"), // [F, D]
    name("ffn.up", "ffn_up", "mlp.up_proj"),      // [F, D]
    name("ffn.down", "ffn_down", "mlp.down_proj"), // [D, F]
    name("ffn.gate_up", "", "mlp.gate_up_proj"),  // [2 * F, D]
    name("ffn.sub_norm", "ffn_sub_norm", "mlp.ffn_sub_norm"), // [F]
    name("ffn.post_norm", "post_ffw_norm", "post_feedforward_layernorm"), // [D]
    name("moe.router", "ffn_gate_inp", "mlp.gate"), // [E, D]
    name("moe.router", "", "mlp.router"),         // gpt-oss
    name("moe.router", "", "block_sparse_moe.gate"),
    name("moe.router.selection", "exp_probs_b", "mlp.gate.e_score_correction"), // `.bias` [E]: only to select
    name("moe.gate", "ffn_gate_exps", "mlp.experts.*.gate_proj"),               // [E, F, D]
    name("moe.gate", "", "block_sparse_moe.experts.*.w1"),
    name("moe.up", "ffn_up_exps", "mlp.experts.*.up_proj"), // [E, F, D]
    name("moe.up", "", "block_sparse_moe.experts.*.w3"),
    name("moe.down", "ffn_down_exps", "mlp.experts.*.down_proj"), // [E, D, F]
    name("moe.down", "", "block_sparse_moe.experts.*.w2"),
    name("moe.down", "", "mlp.experts.down_proj"),
    name("moe.gate", "", "mlp.experts.gate_proj"), // MLX of gpt-oss
    name("moe.up", "", "mlp.experts.up_proj"),
    name("moe.gate", "", "mlp.switch_mlp.gate_proj"), // MLX
    name("moe.up", "", "mlp.switch_mlp.up_proj"),
    name("moe.down", "", "mlp.switch_mlp.down_proj"),
    name("moe.gate", "", "block_sparse_moe.switch_mlp.gate_proj"),
    name("moe.up", "", "block_sparse_moe.switch_mlp.up_proj"),
    name("moe.down", "", "block_sparse_moe.switch_mlp.down_proj"),
    name("moe.gate_up", "ffn_gate_up_exps", "mlp.experts.gate_up_proj"), // [E, 2 * F, D], taken apart at load
    name("moe.shared.router", "ffn_gate_inp_shexp", "mlp.shared_expert_gate"), // [1, D]
    name("moe.shared.gate", "ffn_gate_shexp", "mlp.shared_expert.gate_proj"), // [F, D]
    name("moe.shared.up", "ffn_up_shexp", "mlp.shared_expert.up_proj"),  // [F, D]
    name("moe.shared.down", "ffn_down_shexp", "mlp.shared_expert.down_proj"), // [D, F]
    name("delta.a", "ssm_alpha", "linear_attn.in_proj_a"),               // [Hv, D]
    name("delta.b", "ssm_beta", "linear_attn.in_proj_b"),                // [Hv, D]
    name("delta.ba", "ssm_ba", "linear_attn.in_proj_ba"),                // [2 * Hv, D]
    name("delta.qkvz", "ssm_in", "linear_attn.in_proj_qkvz"),            // [2 * Hk * dk + 2 * Hv * dv, D]
    name("delta.conv", "ssm_conv1d", "linear_attn.conv1d"),              // [2 * Hk * dk + Hv * dv, kernel]
    name("delta.dt", "ssm_dt", ""),                                      // `.bias`, read as `delta.dt_bias`
    name("delta.dt_bias", "", "linear_attn.dt_bias"),                    // [Hv]
    name("delta.decay", "ssm_a", "linear_attn.A_log"),                   // [Hv]: -exp(A_log)
    name("delta.norm", "ssm_norm", "linear_attn.norm"),                  // [dv]
    name("delta.out", "ssm_out", "linear_attn.out_proj"),                // [D, Hv * dv]
];

/// What a file's name means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// A weight.
    Weight(String),
    /// The matrix of one expert of a weight.
    Expert(String, usize),
    /// Known, and without influence on what the model computes here.
    Ignored,
    /// Not known.
    Unknown,
}

impl Meaning {
    /// The canonical name of a weight; nothing for others.
    pub fn canonical(&self) -> String {
        match self {
            Self::Weight(canonical) | Self::Expert(canonical, _) => canonical.clone(),
            Self::Ignored | Self::Unknown => String::new(),
        }
    }
}

/// The same meaning with an ending behind its canonical name.
pub(crate) fn with_ending(meaning: &Meaning, ending: &str) -> Meaning {
    match meaning {
        Meaning::Weight(canonical) => Meaning::Weight(format!("{canonical}{ending}")),
        Meaning::Expert(canonical, expert) => Meaning::Expert(format!("{canonical}{ending}"), *expert),
        other => other.clone(),
    }
}

/// The meaning of a GGUF tensor name in an architecture whose first `layers` layers are the model itself.
pub(crate) fn from_gguf(name: &str, architecture: &str, layers: usize) -> Meaning {
    let Some((base, suffix)) =
        split_suffix(name, &[(".weight", ""), (".bias", ".bias"), (".scale", ".scale")])
    else {
        return Meaning::Ignored;
    };
    let Some((layer, base)) = base.strip_prefix("blk.").and_then(split_layer) else {
        return match find(GLOBAL, architecture, |row| !base.is_empty() && row.gguf == base) {
            Some(row) => Meaning::Weight(format!("{}{suffix}", row.canonical)),
            None => Meaning::Unknown,
        };
    };
    if layer >= layers || base.starts_with("nextn.") {
        return Meaning::Ignored; // layers that only draft tokens
    }
    if let Some(row) = find(LAYER, architecture, |row| !base.is_empty() && row.gguf == base) {
        return match row.canonical {
            "delta.dt" => Meaning::Weight(format!("layer.{layer}.delta.dt_bias")),
            canonical => Meaning::Weight(format!("layer.{layer}.{canonical}{suffix}")),
        };
    }
    // the first mixtures had a tensor for each expert: `ffn_up.7`
    let one_expert = base.split_once('.').and_then(|(base, expert)| {
        let row = find(LAYER, architecture, |row| row.gguf.strip_suffix("_exps") == Some(base))?;
        Some(Meaning::Expert(format!("layer.{layer}.{}{suffix}", row.canonical), expert.parse().ok()?))
    });
    one_expert.unwrap_or(Meaning::Unknown)
}

/// The name that a weight has in GGUF files of an architecture; `None` if they have none for it.
pub fn gguf_name(canonical: &str, architecture: &str) -> Option<String> {
    let (layer, inner) = match canonical.strip_prefix("layer.").and_then(split_layer) {
        Some((layer, inner)) => (format!("blk.{layer}."), inner),
        None => (String::new(), canonical),
    };
    match inner {
        "delta.dt_bias" => return Some(format!("{layer}ssm_dt.bias")),
        "delta.decay" => return Some(format!("{layer}ssm_a")), // the one weight without an ending
        _ => {}
    }
    let rows = if layer.is_empty() { GLOBAL } else { LAYER };
    let (base, suffix) = match inner.rsplit_once('.') {
        Some((base, "bias")) => (base, "bias"),
        Some((base, "scale")) => (base, "scale"),
        _ => (inner, "weight"),
    };
    let row = find(rows, architecture, |row| row.canonical == base && !row.gguf.is_empty())?;
    Some(format!("{layer}{}.{suffix}", row.gguf))
}

/// The meaning of a Hugging Face tensor name.
pub(crate) fn from_hf(name: &str, architecture: &str, layers: usize) -> Meaning {
    const OTHER_PARTS: &[&str] =
        &["visual.", "vision_tower.", "vision_model.", "multi_modal_projector.", "mtp."];
    let name = name.strip_prefix("language_model.").unwrap_or(name);
    let name = name.strip_prefix("model.").unwrap_or(name);
    let name = name.strip_prefix("language_model.").unwrap_or(name);
    if OTHER_PARTS.iter().any(|part| name.starts_with(part)) || name.ends_with("rotary_emb.inv_freq") {
        return Meaning::Ignored;
    }
    let suffixes = [(".weight", ""), ("_bias", ".bias"), (".bias", ".bias")];
    let Some((layer, inner)) = name.strip_prefix("layers.").and_then(split_layer) else {
        let Some((base, suffix)) = split_suffix(name, &suffixes) else { return Meaning::Ignored };
        return match find(GLOBAL, architecture, |row| !base.is_empty() && row.hf == base) {
            Some(row) => Meaning::Weight(format!("{}{suffix}", row.canonical)),
            None => Meaning::Unknown,
        };
    };
    if layer >= layers {
        return Meaning::Ignored;
    }
    if let Some(row) = find(LAYER, architecture, |row| !inner.is_empty() && row.hf == inner) {
        return Meaning::Weight(format!("layer.{layer}.{}", row.canonical));
    }
    let Some((base, suffix)) = split_suffix(inner, &suffixes) else { return Meaning::Ignored };
    let (pattern, expert) = split_expert(base);
    match (find(LAYER, architecture, |row| !row.hf.is_empty() && row.hf == pattern), expert) {
        (Some(row), None) => Meaning::Weight(format!("layer.{layer}.{}{suffix}", row.canonical)),
        (Some(row), Some(expert)) => {
            Meaning::Expert(format!("layer.{layer}.{}{suffix}", row.canonical), expert)
        }
        (None, _) => Meaning::Unknown,
    }
}

fn find(rows: &'static [Name], architecture: &str, is: impl Fn(&Name) -> bool) -> Option<&'static Name> {
    rows.iter().find(|row| (row.only.is_empty() || row.only.contains(&architecture)) && is(row))
}

/// `q_proj.bias` -> `q_proj`, `.bias`; a name without a known ending is its own base. Scales of activations that were
/// measured at conversion give `None`: nothing here rounds activations by them.
fn split_suffix<'a>(name: &'a str, suffixes: &[(&str, &'static str)]) -> Option<(&'a str, &'static str)> {
    if name.ends_with(".input_scale") {
        return None;
    }
    let split = suffixes.iter().find_map(|(ending, suffix)| Some((name.strip_suffix(ending)?, *suffix)));
    Some(split.unwrap_or((name, "")))
}

/// `12.attn_q` -> 12, `attn_q`
fn split_layer(name: &str) -> Option<(usize, &str)> {
    let (number, rest) = name.split_once('.')?;
    Some((number.parse().ok()?, rest))
}

/// `mlp.experts.7.up_proj` -> `mlp.experts.*.up_proj`, 7
fn split_expert(name: &str) -> (String, Option<usize>) {
    let split = || {
        let (before, rest) = name.split_once(".experts.")?;
        let (number, after) = rest.split_once('.')?;
        Some((format!("{before}.experts.*.{after}"), number.parse().ok()?))
    };
    match split() {
        Some((pattern, expert)) => (pattern, Some(expert)),
        None => (name.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn canonical_names_survive_the_way_to_gguf_and_back() {
        for architecture in ["llama", "gemma2", "gpt-oss", "qwen35", "qwen3moe"] {
            let mine = |row: &&Name| row.only.is_empty() || row.only.contains(&architecture);
            for (prefix, rows) in [("", GLOBAL), ("layer.7.", LAYER)] {
                let taken =
                    |row: &Name| rows.iter().any(|r| r.only.contains(&architecture) && r.gguf == row.gguf);
                let common = rows.iter().filter(mine).filter(|row| !row.only.is_empty() || !taken(row));
                for row in common.filter(|row| !row.gguf.is_empty() && row.canonical != "delta.dt") {
                    for suffix in ["", ".bias", ".scale"] {
                        let name = format!("{prefix}{}{suffix}", row.canonical);
                        let gguf = gguf_name(&name, architecture).unwrap();
                        assert_eq!(from_gguf(&gguf, architecture, 8), Meaning::Weight(name), "{gguf}");
                    }
                }
            }
        }
        assert_eq!(gguf_name("layer.0.attn.q.bias", "qwen2").as_deref(), Some("blk.0.attn_q.bias"));
        assert_eq!(
            gguf_name("layer.0.ffn.norm", "qwen35").as_deref(),
            Some("blk.0.post_attention_norm.weight")
        );
        assert_eq!(gguf_name("layer.0.delta.decay", "qwen35").as_deref(), Some("blk.0.ssm_a"));
        assert_eq!(gguf_name("layer.0.nothing", "llama"), None);
    }

    #[test]
    fn one_name_means_what_its_architecture_says() {
        let weight = |name: &str| Meaning::Weight(name.to_owned());
        let norm = "blk.3.post_attention_norm.weight";
        assert_eq!(from_gguf(norm, "gemma3", 4), weight("layer.3.attn.post_norm"));
        assert_eq!(from_gguf(norm, "qwen35", 4), weight("layer.3.ffn.norm"));
        assert_eq!(from_gguf(norm, "qwen35", 3), Meaning::Ignored);
        assert_eq!(from_gguf("blk.0.attn_qkv.weight", "qwen35", 4), weight("layer.0.delta.qkv"));
        assert_eq!(from_gguf("blk.0.attn_qkv.weight", "phi3", 4), weight("layer.0.attn.qkv"));
        assert_eq!(
            from_gguf("blk.0.ffn_up.7.weight", "llama", 4),
            Meaning::Expert("layer.0.moe.up".into(), 7)
        );
        assert_eq!(from_gguf("blk.0.ffn_down_exps.scale", "qwen3moe", 4), weight("layer.0.moe.down.scale"));
        assert_eq!(from_gguf("blk.0.ffn_down.input_scale", "qwen3", 4), Meaning::Ignored);
        for name in ["blk.0..weight", "blk.x.attn_q.weight", "", ".weight", "blk.0.attn_q_norm_in.weight"] {
            assert_eq!(from_gguf(name, "qwen3", 4), Meaning::Unknown, "{name}");
        }
        let norm = "model.layers.3.post_attention_layernorm.weight";
        assert_eq!(from_hf(norm, "gemma2", 4), weight("layer.3.attn.post_norm"));
        assert_eq!(from_hf(norm, "llama", 4), weight("layer.3.ffn.norm"));
        assert_eq!(
            from_hf("model.layers.0.linear_attn.dt_bias", "qwen35", 4),
            weight("layer.0.delta.dt_bias")
        );
        assert_eq!(from_hf("lm_head.weight", "llama", 4), weight("head"));
        let expert = "model.layers.0.block_sparse_moe.experts.3.w2.weight";
        assert_eq!(from_hf(expert, "llama", 4), Meaning::Expert("layer.0.moe.down".into(), 3));
        let selection = "model.layers.0.mlp.gate.e_score_correction_bias";
        assert_eq!(from_hf(selection, "glm4_moe", 4), weight("layer.0.moe.router.selection.bias"));
        for name in ["mtp.layers.0.mlp.up_proj.weight", "model.layers.0.self_attn.rotary_emb.inv_freq"] {
            assert_eq!(from_hf(name, "llama", 4), Meaning::Ignored, "{name}");
        }
    }
}
