//! Qwen 3, dense: as Llama, with a norm on each head of q and k.
//!
//! ```text
//! x -> norm -> q, k, v -> norm(q), norm(k) -> rope(q), rope(k) -> attention -> o -> + x
//!   -> norm -> down(silu(gate) * up) -> + x
//! ```
//! Source: Hugging Face transformers, `Qwen3ForCausalLM`.

use crate::{
    Architecture, Config, Defaults, Problem, Weights,
    blocks::{attend, embed, ffn, logits, merge_heads, norm_heads, project},
};
use nibble_graph::Graph;

pub(crate) const QWEN3: Architecture = Architecture { names: &["qwen3"], defaults: Defaults::PLAIN, build };

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
        let h = ffn(g, c, w, h)?;
        x = g.add(x, h)?;
    }
    let logits = logits(g, c, w, x, table)?; // [W, V]
    g.output(logits);
    Ok(())
}
