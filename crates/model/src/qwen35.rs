//! Qwen 3.5, text: three layers in four are gated delta nets, the fourth is gated attention.
//!
//! ```text
//! delta net: x -> norm -> qkv -> short conv -> silu -> q, k, v; l2(q), l2(k)
//!            beta = sigmoid(b), decay = -exp(A_log) * softplus(a + dt_bias)
//!            delta rule -> norm of each head -> * silu(z) -> out -> + x
//! attention: x -> norm -> q and gate, k, v -> norm(q), norm(k) -> rope(q), rope(k) -> attention
//!            -> * sigmoid(gate) -> o -> + x
//! both:      -> norm -> down(silu(gate) * up) -> + x
//! ```
//! A quarter of each attention head turns. Source: Hugging Face transformers, `Qwen3_5ForCausalLM`.

use crate::{
    Architecture, Config, Defaults, LayerKind, Problem, Weights,
    blocks::{attend, embed, ffn, logits, merge_heads, norm_heads},
};
use nibble_graph::{Activation, GatedDelta, Graph, Rope, Value};

pub(crate) const QWEN35: Architecture = Architecture {
    names: &["qwen35"],
    defaults: Defaults { full_every: 4, other: LayerKind::Recurrent, ..Defaults::PLAIN },
    build,
};

/// Added to the sum of squares where queries and keys are normalized.
const L2_EPS: f32 = 1e-6;

fn build(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(), Problem> {
    let rope = c.rope.op(w)?;
    let (mut x, table) = embed(g, c, w)?; // [T, D]
    for layer in 0..c.layers {
        g.set_layer(Some(layer));
        let w = &w.layer(layer);
        let h = g.rms_norm(x, w.get("attn.norm", [c.hidden])?, c.norm_eps)?;
        let h = match c.kinds[layer] {
            LayerKind::Recurrent => delta_net(g, c, w, h)?,
            LayerKind::Full | LayerKind::Windowed => gated_attention(g, c, w, layer, &rope, h)?,
        };
        x = g.add(x, h)?;
        let h = g.rms_norm(x, w.get("ffn.norm", [c.hidden])?, c.norm_eps)?;
        let h = ffn(g, c, w, h)?;
        x = g.add(x, h)?;
    }
    let logits = logits(g, c, w, x, table)?; // [W, V]
    g.output(logits);
    Ok(())
}

fn delta_net(g: &mut Graph, c: &Config, w: &Weights<'_>, x: Value) -> Result<Value, Problem> {
    let d = c.delta()?;
    let (keys, values) = (d.key_heads * d.key_dim, d.value_heads * d.value_dim);
    let all = 2 * keys + values;
    let qkv = g.linear(x, w.linear("delta.qkv", [all, c.hidden])?)?; // [T, 2K + V]
    let z = g.linear(x, w.linear("delta.z", [values, c.hidden])?)?; // [T, V]
    let a = g.linear(x, w.linear("delta.a", [d.value_heads, c.hidden])?)?; // [T, H]
    let b = g.linear(x, w.linear("delta.b", [d.value_heads, c.hidden])?)?; // [T, H]

    let qkv = g.short_conv(qkv, w.get("delta.conv", [all, d.kernel])?)?;
    let qkv = g.activate(Activation::Silu, qkv)?;
    let q = g.slice(qkv, all, 0, keys)?; // [T, K]
    let k = g.slice(qkv, all, keys, keys)?; // [T, K]
    let v = g.slice(qkv, all, 2 * keys, values)?; // [T, V]
    let q = g.l2_norm(q, d.key_dim, L2_EPS)?;
    let k = g.l2_norm(k, d.key_dim, L2_EPS)?;

    let beta = g.activate(Activation::Sigmoid, b)?;
    let a = g.bias(a, w.get("delta.dt_bias", [d.value_heads])?)?;
    let a = g.activate(Activation::Softplus, a)?;
    let decay = g.gain(a, w.get("delta.decay", [d.value_heads])?)?;

    let rule = GatedDelta {
        state: g.add_state(d.value_heads * d.key_dim * d.value_dim),
        key_heads: d.key_heads,
        value_heads: d.value_heads,
        key_dim: d.key_dim,
        value_dim: d.value_dim,
        scale: (d.key_dim as f32).sqrt().recip(),
        grouped: d.grouped,
    };
    let y = g.gated_delta([q, k, v], decay, beta, rule)?; // [T, V]
    let y = g.rms_norm(y, w.get("delta.norm", [d.value_dim])?, c.norm_eps)?;
    let y = g.gated(Activation::Silu, z, y)?;
    Ok(g.linear(y, w.linear("delta.out", [c.hidden, values])?)?)
}

fn gated_attention(
    g: &mut Graph,
    c: &Config,
    w: &Weights<'_>,
    layer: usize,
    rope: &Rope,
    x: Value,
) -> Result<Value, Problem> {
    let (pair, dim) = (2 * c.head_dim, c.head_dim);
    let q_gate = g.linear(x, w.linear("attn.q", [c.heads * pair, c.hidden])?)?; // per head: query, gate
    let q = g.slice(q_gate, pair, 0, dim)?; // [T, H * Dk]
    let gate = g.slice(q_gate, pair, dim, dim)?; // [T, H * Dk]
    let k = g.linear(x, w.linear("attn.k", [c.kv_heads * dim, c.hidden])?)?;
    let v = g.linear(x, w.linear("attn.v", [c.kv_heads * c.value_dim, c.hidden])?)?;
    let [q, k] = norm_heads(g, c, w, [q, k])?;
    let (q, k) = (g.rope(q, rope.clone())?, g.rope(k, rope.clone())?);
    let h = attend(g, c, layer, [q, k, v], None)?;
    let h = g.gated(Activation::Sigmoid, gate, h)?;
    merge_heads(g, c, w, h)
}
