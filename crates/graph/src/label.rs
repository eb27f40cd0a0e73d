//! What nodes are called in errors, traces and reports.

use crate::{Graph, Node, Op, Value};
use std::fmt;

/// What a node computes, or several that a backend runs as one: `layer 3: matmul (ffn.gate, ffn.up) + gated`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Label {
    /// The layer; `None` before the first and after the last.
    pub layer: Option<usize>,
    /// The ops, with their weights or inputs. The same in every layer of one kind.
    pub what: String,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(layer) = self.layer {
            write!(f, "layer {layer}: ")?;
        }
        f.write_str(&self.what)
    }
}

impl Graph {
    /// What a value is called within its layer: by the matrix or the norm that made it (`ffn.gate`), whatever was done
    /// to the numbers since, or by the op that joined others (`attention`).
    pub fn name(&self, value: Value) -> String {
        let changes = |op: &Op| {
            matches!(
                op,
                Op::Bias
                    | Op::Gain
                    | Op::Scale(_)
                    | Op::Activate(_)
                    | Op::SoftCap(_)
                    | Op::L2Norm { .. }
                    | Op::Slice { .. }
                    | Op::Rope(_)
                    | Op::Wanted
            )
        };
        let mut node = self.node(value);
        while changes(&node.op) {
            node = self.node(node.inputs[0]);
        }
        self.weight_names(node).next().map_or_else(|| node.op.name().into(), Into::into)
    }

    /// The label of nodes that run together, `values` in their order.
    pub fn label(&self, values: &[Value]) -> Label {
        let mut ops: Vec<(&str, Vec<String>)> = Vec::new();
        for &value in values {
            let node = self.node(value);
            let mut details: Vec<String> = self.weight_names(node).map(Into::into).collect();
            if details.is_empty() && values.len() == 1 {
                details.extend(node.inputs.iter().map(|&input| self.name(input)));
            }
            match ops.iter_mut().find(|(op, _)| *op == node.op.name()) {
                Some((_, all)) => all.extend(details),
                None => ops.push((node.op.name(), details)),
            }
        }
        let text = |(op, details): &(&str, Vec<String>)| match details.is_empty() {
            true => op.to_string(),
            false => format!("{op} ({})", details.join(", ")),
        };
        let what = ops.iter().map(text).collect::<Vec<_>>().join(" + ");
        Label { layer: values.first().and_then(|&v| self.node(v).layer), what }
    }

    /// What each layer passes on: its number and the last value made in it, which is the residual stream after it.
    pub fn layer_outputs(&self) -> Vec<(usize, Value)> {
        let mut outputs: Vec<(usize, Value)> = Vec::new();
        for (i, node) in self.nodes.iter().enumerate() {
            let Some(layer) = node.layer else { continue };
            match outputs.last_mut() {
                Some((last, value)) if *last == layer => *value = Value(i as u32),
                _ => outputs.push((layer, Value(i as u32))),
            }
        }
        outputs
    }

    /// The names of a node's weights without that of its layer.
    fn weight_names<'a>(&'a self, node: &'a Node) -> impl Iterator<Item = &'a str> {
        let layer = node.layer.map(|layer| format!("layer.{layer}."));
        node.weights.iter().map(move |&id| {
            let name = self.weight(id).name.as_str();
            layer.as_deref().and_then(|layer| name.strip_prefix(layer)).unwrap_or(name)
        })
    }
}
