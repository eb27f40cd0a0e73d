//! The graph as text: one line a node, so that a review shows a change of the data flow.

use crate::{Frequencies, Graph, Node, Op, Rows};
use std::fmt;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut layer = None;
        for (i, node) in self.nodes.iter().enumerate() {
            if node.layer != layer {
                layer = node.layer;
                match layer {
                    Some(layer) => writeln!(f, "layer {layer}")?,
                    None => writeln!(f, "end")?,
                }
            }
            let rows = match node.rows {
                Rows::Tokens => 'T',
                Rows::Wanted => 'W',
            };
            write!(f, "  %{i} [{rows}, {}] = {}", node.width, node.op.name())?;
            for (i, v) in node.inputs.iter().enumerate() {
                write!(f, "{}%{}", if i == 0 { " " } else { ", " }, v.0)?;
            }
            for w in &node.weights {
                let weight = self.weight(*w);
                write!(f, "; {} {:?}", weight.name, weight.data)?;
            }
            attributes(node, f)?;
            writeln!(f)?;
        }
        write!(f, "output")?;
        for v in &self.outputs {
            write!(f, " %{}", v.0)?;
        }
        writeln!(f)
    }
}

/// What the op's fields say, as ` {name=value ...}`.
fn attributes(node: &Node, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match &node.op {
        Op::Scale(factor) => write!(f, " {{factor={factor}}}"),
        Op::Activate(a) | Op::Gated(a) => write!(f, " {{{a:?}}}"),
        Op::SoftCap(cap) => write!(f, " {{cap={cap}}}"),
        Op::RmsNorm { eps } => write!(f, " {{eps={eps:e}}}"),
        Op::L2Norm { group, eps } => write!(f, " {{group={group} eps={eps:e}}}"),
        Op::Hadamard { block } => write!(f, " {{block={block}}}"),
        Op::Slice { group, start, len } => write!(f, " {{{start}..{} of {group}}}", start + len),
        Op::Rope(r) => {
            write!(f, " {{dims={}/{} {:?}", r.dims, r.head_dim, r.layout)?;
            match &r.frequencies {
                Frequencies::Fixed(inverse) => {
                    let (first, last) = (inverse.first(), inverse.last());
                    write!(f, " inverse={}..{}", first.unwrap_or(&0.0), last.unwrap_or(&0.0))?;
                }
                Frequencies::Dynamic { base, factor, original } => {
                    write!(f, " dynamic base={base} factor={factor} original={original}")?;
                }
            }
            write!(f, " magnitude={}}}", r.magnitude)
        }
        Op::Attention(a) => {
            write!(f, " {{cache={} heads={} scale={}", a.cache, a.heads, a.scale)?;
            if let Some(window) = a.window {
                write!(f, " window={window}")?;
            }
            if let Some(cap) = a.soft_cap {
                write!(f, " cap={cap}")?;
            }
            write!(f, "}}")
        }
        Op::ShortConv { state } => write!(f, " {{state={state}}}"),
        Op::GatedDelta(d) => {
            let order = if d.grouped { "grouped" } else { "tiled" };
            let (k, v) = ((d.key_heads, d.key_dim), (d.value_heads, d.value_dim));
            write!(f, " {{state={} k={}x{} v={}x{} {order}}}", d.state, k.0, k.1, v.0, v.1)
        }
        Op::Route(r) => {
            write!(f, " {{used={} {:?} normalize={} scale={}}}", r.used, r.scoring, r.normalize, r.scale)
        }
        _ => Ok(()),
    }
}
