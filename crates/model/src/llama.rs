//! Llama 2 and 3, SmolLM 2, Mistral (with its window): the plain pre-norm transformer.
//!
//! ```text
//! x -> norm -> q, k, v -> rope(q), rope(k) -> attention -> o -> + x
//!   -> norm -> down(silu(gate) * up) -> + x
//! ```
//! Source: Hugging Face transformers, `LlamaForCausalLM`, `MistralForCausalLM`. BitNet checkpoints of this class
//! bring a scale with each matrix.

use crate::{
    Architecture, Config, Defaults, Problem, Weights,
    blocks::{attend, embed, ffn, logits, merge_heads, project},
};
use nibble_graph::Graph;

pub(crate) const LLAMA: Architecture =
    Architecture { names: &["llama", "mistral"], defaults: Defaults::PLAIN, build };

pub(crate) fn build(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(), Problem> {
    let rope = c.rope.op(w)?;
    let (mut x, table) = embed(g, c, w)?; // [T, D]
    for layer in 0..c.layers {
        g.set_layer(Some(layer));
        let w = &w.layer(layer);
        let h = g.rms_norm(x, w.get("attn.norm", [c.hidden])?, c.norm_eps)?;
        let [q, k, v] = project(g, c, w, h)?;
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
