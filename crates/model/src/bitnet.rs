//! BitNet b1.58: as Llama with ternary matrices, and a norm before each matrix that ends a block.
//!
//! ```text
//! x -> norm -> q, k, v -> rope(q), rope(k) -> attention -> norm -> o -> + x
//!   -> norm -> down(norm(relu(gate)^2 * up)) -> + x
//! ```
//! The first models have SiLU in the place of the squared ReLU. Trained with inputs of ternary matrices rounded to eight
//! bits, row by row; here they are rounded as those of all matrices are. Sources: Hugging Face transformers,
//! `BitNetForCausalLM`; microsoft/BitNet for GGUF.

use crate::{
    Architecture, Config, Defaults, Problem, Weights,
    blocks::{attend, embed, gated_up, logits, merge_heads, project},
};
use nibble_graph::{Activation, Graph};

pub(crate) const BITNET: Architecture = Architecture {
    names: &["bitnet", "bitnet-25", "bitnet-b1.58"],
    defaults: Defaults { activation: Activation::Relu2, ..Defaults::PLAIN },
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
        let h = attend(g, c, layer, [q, k, v], None)?;
        let h = g.rms_norm(h, w.get("attn.sub_norm", [c.heads * c.value_dim])?, c.norm_eps)?;
        let h = merge_heads(g, c, w, h)?;
        x = g.add(x, h)?;
        let h = g.rms_norm(x, w.get("ffn.norm", [c.hidden])?, c.norm_eps)?;
        let h = gated_up(g, c, w, h)?; // [T, F]
        let h = g.rms_norm(h, w.get("ffn.sub_norm", [c.ffn])?, c.norm_eps)?;
        let h = g.linear(h, w.linear("ffn.down", [c.hidden, c.ffn])?)?;
        x = g.add(x, h)?;
    }
    let logits = logits(g, c, w, x, table)?; // [W, V]
    g.output(logits);
    Ok(())
}
