//! Hyperparameters: read from metadata by canonical key, checked against ranges, completed per architecture.

use crate::{Problem, RopeConfig};
use nibble_format::{Checkpoint, Metadata, Value};
use nibble_graph::{Activation, RopeLayout};
use std::ops::RangeInclusive;

/// What a layer mixes tokens with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerKind {
    /// Attention over everything before.
    Full,
    /// Attention over the last [`Config::window`] positions; over everything before without a window.
    Windowed,
    /// A recurrent state.
    Recurrent,
}

/// Hyperparameters for files that do not say them.
#[derive(Clone, Copy, Debug)]
pub struct Defaults {
    /// Of the feed-forward network.
    pub activation: Activation,
    /// Positions seen by windowed layers.
    pub window: Option<usize>,
    /// Each so many-th layer is [`LayerKind::Full`]; 0: none.
    pub full_every: usize,
    /// What the other layers are.
    pub other: LayerKind,
    /// Base of the rotary frequencies in windowed layers, where it differs.
    pub local_rope_base: Option<f64>,
}

impl Defaults {
    /// Attention everywhere, through one window if the file has one; everything turns.
    pub const PLAIN: Self = Self {
        activation: Activation::Silu,
        window: None,
        full_every: 0,
        other: LayerKind::Windowed,
        local_rope_base: None,
    };
}

/// A mixture of experts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Experts {
    /// Experts in a layer.
    pub count: usize,
    /// Experts used for each token.
    pub used: usize,
    /// Width of one expert.
    pub ffn: usize,
    /// Whether the weights of the used ones are divided by their sum.
    pub normalize: bool,
}

/// A gated delta net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta {
    /// Taps of the short convolution.
    pub kernel: usize,
    /// Heads of queries and keys.
    pub key_heads: usize,
    /// Heads of values.
    pub value_heads: usize,
    /// Numbers in a query or key.
    pub key_dim: usize,
    /// Numbers in a value.
    pub value_dim: usize,
    /// Whether consecutive value heads share a key head.
    pub grouped: bool,
}

/// Hyperparameters of a model, all within sane ranges.
#[derive(Clone, Debug)]
pub struct Config {
    /// Its canonical name.
    pub architecture: String,
    /// Layers.
    pub layers: usize,
    /// What each of them is.
    pub kinds: Vec<LayerKind>,
    /// Width of the residual stream: `D`.
    pub hidden: usize,
    /// Width of the dense feed-forward network; 0 if the file has none.
    pub ffn: usize,
    /// Tokens known: `V`, the rows of the embedding.
    pub vocab: usize,
    /// Positions the model was made for.
    pub context: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Numbers in a query or key.
    pub head_dim: usize,
    /// Numbers in a value.
    pub value_dim: usize,
    /// Added to the mean square in norms.
    pub norm_eps: f32,
    /// Of the feed-forward network.
    pub activation: Activation,
    /// Multiplies attention scores.
    pub attention_scale: f32,
    /// Positions seen by windowed layers, the token's own included.
    pub window: Option<usize>,
    /// Cap of attention scores.
    pub attention_soft_cap: Option<f32>,
    /// Cap of logits.
    pub final_soft_cap: Option<f32>,
    /// Rotary embedding.
    pub rope: RopeConfig,
    /// Rotary embedding of windowed layers, where it differs.
    pub local_rope: Option<RopeConfig>,
    /// The mixture of experts, if there is one.
    pub experts: Option<Experts>,
    /// The gated delta net, if there is one.
    pub delta: Option<Delta>,
    /// The block of the Hadamard transform that rotated matrices are in.
    pub rotation_block: usize,
}

/// Sizes beyond these are mistakes; products of any three of them fit 64 bits.
const WIDTH: RangeInclusive<usize> = 1..=1 << 20;
const HEADS: RangeInclusive<usize> = 1..=1 << 12;
const HEAD_DIM: RangeInclusive<usize> = 1..=1 << 14;
const LAYERS: RangeInclusive<usize> = 1..=1 << 10;
const POSITIONS: RangeInclusive<usize> = 1..=1 << 31;

impl Config {
    /// Reads and checks the hyperparameters of a checkpoint; `vocab` tells the size of the vocabulary from the width.
    pub(crate) fn read(
        checkpoint: &Checkpoint,
        defaults: &Defaults,
        vocab: impl FnOnce(usize) -> Result<usize, Problem>,
    ) -> Result<Self, Problem> {
        let keys = Keys(&checkpoint.metadata);
        for (key, only) in [("swiglu_alpha", 1.702), ("swiglu_limit", 7.0)] {
            if let Some(other) = keys.positive(key)?.filter(|found| (found - only).abs() > 1e-6) {
                return Err(wrong(key, only.to_string(), other));
            }
        }
        let layers = keys.need("block_count", LAYERS)?;
        let hidden = keys.need("embedding_length", WIDTH)?;
        let heads = keys.need("attention.head_count", HEADS)?;
        let kv_heads = keys.count("attention.head_count_kv", HEADS)?.unwrap_or(heads);
        if !heads.is_multiple_of(kv_heads) {
            let expected = format!("a divisor of {heads} heads");
            return Err(wrong("attention.head_count_kv", expected, kv_heads));
        }
        let head_dim = match keys.count("attention.key_length", HEAD_DIM)? {
            Some(dim) => dim,
            None if hidden.is_multiple_of(heads) => hidden / heads,
            None => return Err(Problem::MissingKey { key: "attention.key_length" }),
        };
        let value_dim = keys.count("attention.value_length", HEAD_DIM)?.unwrap_or(head_dim);
        let context = keys.need("context_length", POSITIONS)?;
        let kinds = keys.kinds(layers, defaults)?;
        let window = keys.count("attention.sliding_window", 0..=*POSITIONS.end())?.or(defaults.window);
        let scale = keys.positive("attention.scale")?.unwrap_or((head_dim as f64).sqrt().recip());
        let rope = RopeConfig::read(&keys, head_dim, context)?;
        let local_base = keys.positive("rope.local.freq_base")?.or(defaults.local_rope_base);
        let local_rope = local_base.map(|base| rope.unscaled(base));
        Ok(Self {
            architecture: checkpoint.architecture.clone(),
            vocab: vocab(hidden)?,
            layers,
            kinds,
            hidden,
            ffn: keys.count("feed_forward_length", 0..=1 << 22)?.unwrap_or(0),
            context,
            heads,
            kv_heads,
            head_dim,
            value_dim,
            norm_eps: keys.positive("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-6) as f32,
            activation: keys.activation()?.unwrap_or(defaults.activation),
            attention_scale: scale as f32,
            window: window.filter(|&window| window > 0),
            attention_soft_cap: keys.positive("attn_logit_softcapping")?.map(|cap| cap as f32),
            final_soft_cap: keys.positive("final_logit_softcapping")?.map(|cap| cap as f32),
            rope,
            local_rope,
            experts: keys.experts()?,
            delta: keys.delta()?,
            rotation_block: keys.count("rotation.block_size", WIDTH)?.unwrap_or(1),
        })
    }

    /// The window of a layer, if it has one.
    pub fn window(&self, layer: usize) -> Option<usize> {
        self.window.filter(|_| self.kinds[layer] == LayerKind::Windowed)
    }

    /// The mixture of experts.
    ///
    /// # Errors
    /// If the file says nothing of one.
    pub fn experts(&self) -> Result<&Experts, Problem> {
        self.experts.as_ref().ok_or(Problem::MissingKey { key: "expert_count" })
    }

    /// The gated delta net.
    ///
    /// # Errors
    /// If the file says nothing of one.
    pub fn delta(&self) -> Result<&Delta, Problem> {
        self.delta.as_ref().ok_or(Problem::MissingKey { key: "ssm.state_size" })
    }
}

/// Metadata with ranges and kinds.
pub(crate) struct Keys<'a>(pub &'a Metadata);

pub(crate) fn wrong(key: &'static str, expected: impl Into<String>, found: impl ToString) -> Problem {
    Problem::Key { key, expected: expected.into(), found: found.to_string() }
}

impl Keys<'_> {
    fn value(&self, key: &str) -> Option<&Value> {
        self.0.get(key)
    }

    /// A whole number in a range. A list with one entry a layer counts if all are the same, but for the zeros of
    /// layers that do not have the thing.
    pub fn count(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<Option<usize>, Problem> {
        let found: i128 = match self.value(key) {
            None => return Ok(None),
            Some(Value::Int(n)) => *n,
            Some(Value::Ints(list)) => {
                let mut sizes = list.iter().filter(|&&n| n != 0);
                let first = sizes.next().copied().unwrap_or(0);
                if sizes.any(|&n| n != first) {
                    return Err(wrong(key, "the same number for every layer", "different ones"));
                }
                first.into()
            }
            Some(other) => return Err(wrong(key, "a whole number", other)),
        };
        match usize::try_from(found) {
            Ok(n) if range.contains(&n) => Ok(Some(n)),
            _ => Err(wrong(key, format!("{} to {}", range.start(), range.end()), found)),
        }
    }

    /// The same, and it must be there.
    pub fn need(&self, key: &'static str, range: RangeInclusive<usize>) -> Result<usize, Problem> {
        self.count(key, range)?.ok_or(Problem::MissingKey { key })
    }

    /// A finite number above zero.
    pub fn positive(&self, key: &'static str) -> Result<Option<f64>, Problem> {
        let found = match self.value(key) {
            None => return Ok(None),
            Some(Value::Float(x)) => *x,
            Some(Value::Int(n)) => *n as f64,
            Some(other) => return Err(wrong(key, "a number", other)),
        };
        if found.is_finite() && found > 0.0 && found < 1e30 {
            Ok(Some(found))
        } else {
            Err(wrong(key, "a finite number above 0", found))
        }
    }

    /// A truth value.
    pub fn flag(&self, key: &'static str) -> Result<Option<bool>, Problem> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(b)) => Ok(Some(*b)),
            Some(other) => Err(wrong(key, "true or false", other)),
        }
    }

    /// Text.
    pub fn text(&self, key: &'static str) -> Result<Option<&str>, Problem> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(key, "a text", other)),
        }
    }

    fn activation(&self) -> Result<Option<Activation>, Problem> {
        Ok(match self.text("hidden_act")? {
            None => None,
            Some("silu" | "swish") => Some(Activation::Silu),
            Some("gelu_pytorch_tanh" | "gelu_new" | "gelu_tanh") => Some(Activation::GeluTanh),
            Some("relu2") => Some(Activation::Relu2),
            Some(other) => return Err(wrong("hidden_act", "silu, gelu_pytorch_tanh or relu2", other)),
        })
    }

    /// `split` or `interleaved`.
    pub fn rope_layout(&self) -> Result<RopeLayout, Problem> {
        match self.text("rope.layout")? {
            None | Some("split") => Ok(RopeLayout::Split),
            Some("interleaved") => Ok(RopeLayout::Interleaved),
            Some(other) => Err(wrong("rope.layout", "split or interleaved", other)),
        }
    }

    /// What each layer is: as the file lists it, or by the defaults.
    fn kinds(&self, layers: usize, defaults: &Defaults) -> Result<Vec<LayerKind>, Problem> {
        const KEY: &str = "attention.layer_types";
        let list = match self.value(KEY) {
            Some(Value::Texts(types)) => {
                types.iter().map(|name| kind(KEY, name)).collect::<Result<Vec<_>, _>>()?
            }
            Some(other) => return Err(wrong(KEY, "a list of texts", other)),
            None => {
                let every = defaults.full_every;
                let is_full = |layer: usize| every > 0 && (layer + 1).is_multiple_of(every);
                (0..layers).map(|l| if is_full(l) { LayerKind::Full } else { defaults.other }).collect()
            }
        };
        if list.len() != layers {
            return Err(wrong(KEY, format!("{layers} entries"), list.len()));
        }
        Ok(list)
    }

    fn experts(&self) -> Result<Option<Experts>, Problem> {
        let Some(count) = self.count("expert_count", 0..=1 << 14)?.filter(|&n| n > 0) else {
            return Ok(None);
        };
        Ok(Some(Experts {
            count,
            used: self.need("expert_used_count", 1..=count)?,
            ffn: self.need("expert_feed_forward_length", WIDTH)?,
            normalize: self.flag("expert_weights_norm")?.unwrap_or(true),
        }))
    }

    fn delta(&self) -> Result<Option<Delta>, Problem> {
        let Some(key_dim) = self.count("ssm.state_size", HEAD_DIM)? else {
            return Ok(None);
        };
        let key_heads = self.need("ssm.group_count", HEADS)?;
        let value_heads = self.need("ssm.time_step_rank", HEADS)?;
        if !value_heads.is_multiple_of(key_heads) {
            return Err(wrong(
                "ssm.time_step_rank",
                format!("a multiple of {key_heads} key heads"),
                value_heads,
            ));
        }
        let inner = self.need("ssm.inner_size", WIDTH)?;
        if !inner.is_multiple_of(value_heads) {
            return Err(wrong("ssm.inner_size", format!("a multiple of {value_heads} heads"), inner));
        }
        let grouped = match self.text("ssm.v_order")? {
            None | Some("grouped") => true,
            Some("tiled") => false,
            Some(other) => return Err(wrong("ssm.v_order", "grouped or tiled", other)),
        };
        let kernel = self.need("ssm.conv_kernel", 1..=256)?;
        Ok(Some(Delta { kernel, key_heads, value_heads, key_dim, value_dim: inner / value_heads, grouped }))
    }
}

fn kind(key: &'static str, name: &str) -> Result<LayerKind, Problem> {
    match name {
        "full" => Ok(LayerKind::Full),
        "sliding" => Ok(LayerKind::Windowed),
        "linear" => Ok(LayerKind::Recurrent),
        other => Err(wrong(key, "full, sliding or linear", other)),
    }
}
