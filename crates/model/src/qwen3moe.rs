//! Qwen 3 with a mixture of experts: as Qwen 3, with a router in the place of most feed-forward networks.
//!
//! ```text
//! x -> norm -> q, k, v -> norm(q), norm(k) -> rope(q), rope(k) -> attention -> o -> + x
//!   -> norm -> router -> softmax, best n -> sum of weight * down(silu(gate) * up) over them -> + x
//! ```
//! Layers without a router have one dense network. Source: Hugging Face transformers, `Qwen3MoeForCausalLM`.

use crate::{
    Architecture, Config, Defaults, Problem, Weights,
    blocks::{attend, embed, ffn, logits, merge_heads, norm_heads, project},
};
use nibble_graph::{Graph, Route, Scoring, Value};

pub(crate) const QWEN3MOE: Architecture =
    Architecture { names: &["qwen3moe"], defaults: Defaults::PLAIN, build };

fn build(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(), Problem> {
    let rope = c.rope.op(w)?;
    let (mut x, table) = embed(g, c, w)?; // [T, D]
    for layer in 0..c.layers {
        g.set_layer(Some(layer));
        let w = &w.layer(layer);
        let h = g.rms_norm(x, w.get("attn.norm", [c.hidden])?, c.norm_eps)?;
        let [q, k, v] = project(g, c, w, h)?;
        let [q, k] = norm_heads(g, c, w, [q, k])?;
        let (q, k) = (g.rope(q, rope.clone())?, g.rope(k, rope.clone())?);
        let h = attend(g, c, layer, [q, k, v], None)?;
        let h = merge_heads(g, c, w, h)?;
        x = g.add(x, h)?;
        let h = g.rms_norm(x, w.get("ffn.norm", [c.hidden])?, c.norm_eps)?;
        let h = if w.has_matrix("ffn.gate") { ffn(g, c, w, h)? } else { experts(g, c, w, h)? };
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
    let choice = Route { used: e.used, scoring: Scoring::Softmax, normalize: e.normalize, scale: 1.0 };
    let route = g.route(scores, None, choice)?; // [T, 2 * used]
    let gate = g.expert_matmul(x, route, w.get("moe.gate", [e.count, e.ffn, c.hidden])?)?; // [T, used * F]
    let up = g.expert_matmul(x, route, w.get("moe.up", [e.count, e.ffn, c.hidden])?)?; // [T, used * F]
    let h = g.gated(c.activation, gate, up)?;
    let h = g.expert_matmul(h, route, w.get("moe.down", [e.count, c.hidden, e.ffn])?)?; // [T, used * D]
    Ok(g.combine(h, route)?)
}
