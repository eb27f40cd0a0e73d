//! gpt-oss: a mixture of experts with biases, clamped gates, attention with sinks, and a window in every other layer.
//!
//! ```text
//! x -> norm -> q, k, v + bias -> rope(q), rope(k) -> attention with sinks -> o + bias -> + x
//!   -> norm -> router + bias -> softmax over the best n -> sum of weight * (down(gate(gate(x)) * up(up(x))) + bias) -> + x
//! ```
//! `gate(g) = c * sigmoid(1.702 c)` with `c = min(g, 7)`, `up(u) = 1 + u` with `u` within -7 and 7; gate, up and down have
//! biases of their expert. Source: Hugging Face transformers, `GptOssForCausalLM`.

use crate::{
    Architecture, Config, Defaults, LayerKind, Problem, Weights,
    blocks::{attend, embed, logits, merge_heads, project},
};
use nibble_graph::{Activation, Graph, Route, Scoring, Value};

pub(crate) const GPT_OSS: Architecture = Architecture {
    names: &["gpt-oss"],
    defaults: Defaults { full_every: 2, other: LayerKind::Windowed, window: Some(128), ..Defaults::PLAIN },
    build,
};

fn build(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(), Problem> {
    let rope = c.rope.op(w)?;
    let (mut x, table) = embed(g, c, w)?; // [T, D]
    for layer in 0..c.layers {
        g.set_layer(Some(layer));
        let w = &w.layer(layer);
        let h = g.rms_norm(x, w.get("attn.norm", [c.hidden])?, c.norm_eps)?;
        let [q, k, v] = project(g, c, w, h)?;
        let (q, k) = (g.rope(q, rope.clone())?, g.rope(k, rope.clone())?);
        let sinks = w.get("attn.sinks", [c.heads])?;
        let h = attend(g, c, layer, [q, k, v], Some(sinks))?;
        let h = merge_heads(g, c, w, h)?;
        x = g.add(x, h)?;
        let h = g.rms_norm(x, w.get("ffn.norm", [c.hidden])?, c.norm_eps)?;
        let h = experts(g, c, w, h)?;
        x = g.add(x, h)?;
    }
    let logits = logits(g, c, w, x, table)?; // [W, V]
    g.output(logits);
    Ok(())
}

/// The weighted sum of the chosen experts, `[T, D]`.
fn experts(g: &mut Graph, c: &Config, w: &Weights<'_>, x: Value) -> Result<Value, Problem> {
    let e = c.experts()?;
    let scores = g.linear(x, w.linear("moe.router", [e.count, c.hidden])?)?; // [T, E]
    // The softmax over the chosen ones is that over all, divided by their sum.
    let choice = Route { used: e.used, scoring: Scoring::Softmax, normalize: true, scale: 1.0 };
    let route = g.route(scores, None, choice)?; // [T, 2 * used]
    let gate = g.expert_matmul(x, route, w.get("moe.gate", [e.count, e.ffn, c.hidden])?)?; // [T, used * F]
    let gate = g.expert_bias(gate, route, w.get("moe.gate.bias", [e.count, e.ffn])?)?;
    let up = g.expert_matmul(x, route, w.get("moe.up", [e.count, e.ffn, c.hidden])?)?; // [T, used * F]
    let up = g.expert_bias(up, route, w.get("moe.up.bias", [e.count, e.ffn])?)?;
    let up = g.activate(Activation::OssUp, up)?;
    let h = g.gated(Activation::OssGate, gate, up)?;
    let h = g.expert_matmul(h, route, w.get("moe.down", [e.count, c.hidden, e.ffn])?)?; // [T, used * D]
    let h = g.expert_bias(h, route, w.get("moe.down.bias", [e.count, c.hidden])?)?;
    Ok(g.combine(h, route)?)
}
