//! Gemma 2: norms on both sides of each block, capped scores and logits, every other layer through a window.
//!
//! ```text
//! x -> norm -> q, k, v -> rope(q), rope(k) -> capped attention -> o -> norm -> + x
//!   -> norm -> down(gelu(gate) * up) -> norm -> + x
//! ```
//! The embedding is scaled by `sqrt(D)`; the last logits are capped. Source: Hugging Face transformers,
//! `Gemma2ForCausalLM`.

use crate::{
    Architecture, Config, Defaults, LayerKind, Problem, Weights,
    blocks::{attend, embed, ffn, logits, merge_heads, project},
};
use nibble_graph::{Activation, Graph};

pub(crate) const GEMMA2: Architecture = Architecture {
    names: &["gemma2"],
    defaults: Defaults {
        activation: Activation::GeluTanh,
        window: Some(4096),
        full_every: 2,
        other: LayerKind::Windowed,
        ..Defaults::PLAIN
    },
    build,
};

fn build(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(), Problem> {
    let rope = c.rope.op(w)?;
    let (x, table) = embed(g, c, w)?; // [T, D]
    let mut x = g.scale(x, (c.hidden as f32).sqrt())?;
    for layer in 0..c.layers {
        g.set_layer(Some(layer));
        let w = &w.layer(layer);
        let h = g.rms_norm(x, w.get("attn.norm", [c.hidden])?, c.norm_eps)?;
        let [q, k, v] = project(g, c, w, h)?;
        let (q, k) = (g.rope(q, rope.clone())?, g.rope(k, rope.clone())?);
        let h = attend(g, c, layer, [q, k, v], None)?;
        let h = merge_heads(g, c, w, h)?;
        let h = g.rms_norm(h, w.get("attn.post_norm", [c.hidden])?, c.norm_eps)?;
        x = g.add(x, h)?;
        let h = g.rms_norm(x, w.get("ffn.norm", [c.hidden])?, c.norm_eps)?;
        let h = ffn(g, c, w, h)?;
        let h = g.rms_norm(h, w.get("ffn.post_norm", [c.hidden])?, c.norm_eps)?;
        x = g.add(x, h)?;
    }
    let mut logits = logits(g, c, w, x, table)?; // [W, V]
    if let Some(cap) = c.final_soft_cap {
        logits = g.soft_cap(logits, cap)?;
    }
    g.output(logits);
    Ok(())
}
