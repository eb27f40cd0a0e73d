//! Gemma 3, text: as Gemma 2 without caps, with a norm on each head of q and k; five layers in six look through a
//! window and turn by a base of their own.
//!
//! ```text
//! x -> norm -> q, k, v -> norm(q), norm(k) -> rope(q), rope(k) -> attention -> o -> norm -> + x
//!   -> norm -> down(gelu(gate) * up) -> norm -> + x
//! ```
//! The embedding is scaled by `sqrt(D)`. Source: Hugging Face transformers, `Gemma3ForCausalLM`.

use crate::{
    Architecture, Config, Defaults, LayerKind, Problem, Weights,
    blocks::{attend, embed, ffn, logits, merge_heads, norm_heads, project},
};
use nibble_graph::{Activation, Graph};

pub(crate) const GEMMA3: Architecture = Architecture {
    names: &["gemma3"],
    defaults: Defaults {
        activation: Activation::GeluTanh,
        window: Some(1024),
        full_every: 6,
        other: LayerKind::Windowed,
        local_rope_base: Some(10_000.0),
    },
    build,
};

fn build(g: &mut Graph, c: &Config, w: &Weights<'_>) -> Result<(), Problem> {
    let (full, local) = (c.rope.op(w)?, c.local_rope.as_ref().unwrap_or(&c.rope).op(w)?);
    let (x, table) = embed(g, c, w)?; // [T, D]
    let mut x = g.scale(x, (c.hidden as f32).sqrt())?;
    for layer in 0..c.layers {
        g.set_layer(Some(layer));
        let w = &w.layer(layer);
        let rope = if c.kinds[layer] == LayerKind::Windowed { &local } else { &full };
        let h = g.rms_norm(x, w.get("attn.norm", [c.hidden])?, c.norm_eps)?;
        let [q, k, v] = project(g, c, w, h)?;
        let [q, k] = norm_heads(g, c, w, [q, k])?;
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
