//! Steps that several architectures share.

use crate::{Config, Problem, Weights};
use nibble_graph::{Attention, Graph, KvLayer, Value, Weight};

/// The embedding of the step's tokens, `[T, D]`, and its matrix `[V, D]`, which may serve as head.
pub(crate) fn embed(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(Value, Weight), Problem> {
    let embed = w.get("embed", [c.vocab, c.hidden])?;
    let tokens = g.tokens()?; // [T]
    let mut x = g.embed(tokens, embed.clone())?;
    if let Some(rotation) = w.rotation("embed.unrotate", c.hidden)? {
        x = g.unrotate(x, rotation)?;
    }
    Ok((x, embed))
}

/// Queries, keys and values: `[T, H * Dk]`, `[T, Hkv * Dk]`, `[T, Hkv * Dv]`.
pub(crate) fn project(g: &mut Graph, c: &Config, w: &Weights<'_>, x: Value) -> Result<[Value; 3], Problem> {
    let q = g.linear(x, w.linear("attn.q", [c.heads * c.head_dim, c.hidden])?)?;
    let k = g.linear(x, w.linear("attn.k", [c.kv_heads * c.head_dim, c.hidden])?)?;
    let v = g.linear(x, w.linear("attn.v", [c.kv_heads * c.value_dim, c.hidden])?)?;
    Ok([q, k, v])
}

/// Queries and keys, each head normalized.
pub(crate) fn norm_heads(
    g: &mut Graph,
    c: &Config,
    w: &Weights<'_>,
    [q, k]: [Value; 2],
) -> Result<[Value; 2], Problem> {
    let q = g.rms_norm(q, w.get("attn.q_norm", [c.head_dim])?, c.norm_eps)?;
    let k = g.rms_norm(k, w.get("attn.k_norm", [c.head_dim])?, c.norm_eps)?;
    Ok([q, k])
}

/// Attention of one layer, with sinks `[H]` if it has them: `[T, H * Dv]`.
pub(crate) fn attend(
    g: &mut Graph,
    c: &Config,
    layer: usize,
    [q, k, v]: [Value; 3],
    sinks: Option<Weight>,
) -> Result<Value, Problem> {
    let cache = KvLayer { kv_heads: c.kv_heads, key_dim: c.head_dim, value_dim: c.value_dim };
    let attention = Attention {
        cache: g.add_cache(cache),
        heads: c.heads,
        scale: c.attention_scale,
        window: c.window(layer),
        soft_cap: c.attention_soft_cap,
    };
    Ok(g.attention_with_sinks([q, k, v], sinks, attention)?)
}

/// The output projection: `[T, H * Dv]` to `[T, D]`.
pub(crate) fn merge_heads(g: &mut Graph, c: &Config, w: &Weights<'_>, x: Value) -> Result<Value, Problem> {
    Ok(g.linear(x, w.linear("attn.o", [c.hidden, c.heads * c.value_dim])?)?)
}

/// `down(activation(gate(x)) * up(x))`, `[T, D]`.
pub(crate) fn ffn(g: &mut Graph, c: &Config, w: &Weights<'_>, x: Value) -> Result<Value, Problem> {
    let h = gated_up(g, c, w, x)?;
    Ok(g.linear(h, w.linear("ffn.down", [c.hidden, c.ffn])?)?)
}

/// `activation(gate(x)) * up(x)`, `[T, F]`.
pub(crate) fn gated_up(g: &mut Graph, c: &Config, w: &Weights<'_>, x: Value) -> Result<Value, Problem> {
    let gate = g.linear(x, w.linear("ffn.gate", [c.ffn, c.hidden])?)?; // [T, F]
    let up = g.linear(x, w.linear("ffn.up", [c.ffn, c.hidden])?)?; // [T, F]
    Ok(g.gated(c.activation, gate, up)?)
}

/// Logits of the wanted rows, `[W, V]`: the last norm, then the head, or the embedding where a file has no head.
pub(crate) fn logits(
    g: &mut Graph,
    c: &Config,
    w: &Weights<'_>,
    x: Value,
    embed: Weight,
) -> Result<Value, Problem> {
    g.set_layer(None);
    let x = g.wanted(x)?; // [W, D]
    let x = g.rms_norm(x, w.get("norm", [c.hidden])?, c.norm_eps)?;
    if w.has_matrix("head") {
        return Ok(g.linear(x, w.linear("head", [c.vocab, c.hidden])?)?);
    }
    let x = match w.rotation("embed.rotate", c.hidden)? {
        Some(rotation) => g.rotate(x, rotation)?,
        None => x,
    };
    Ok(g.matmul(x, embed)?)
}
