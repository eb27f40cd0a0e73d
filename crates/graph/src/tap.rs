//! Values that are looked at beside the logits, so that two runs can be compared layer by layer.

use crate::{Graph, Op, Value, WeightId};

/// A value inside a graph that is read after each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tap {
    /// What it is the result of: a weight (`layer.3.attn.q`), a whole layer (`layer.3`), what comes before the first one
    /// (`embedding`) or after the last one (`end`).
    pub name: String,
    /// The layer it belongs to.
    pub layer: Option<usize>,
    /// The value.
    pub value: Value,
}

/// A product with a weight, whose input is read after each step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Product {
    /// The weight: `[N, K]`, or of experts `[E, N, K]`.
    pub weight: WeightId,
    /// Which of the graph's outputs is the input.
    pub input: usize,
    /// For experts, which output is the route, and how many are used for a row.
    pub route: Option<(usize, usize)>,
}

impl Graph {
    /// Makes an output of the input of every product with a weight; returns the products in order. The first output stays,
    /// and what is computed too, as for [`Self::tap`].
    pub fn tap_products(&mut self) -> Vec<Product> {
        self.outputs.truncate(1);
        let mut products = vec![];
        for i in 0..self.nodes.len() {
            let (op, inputs) = (self.nodes[i].op.clone(), self.nodes[i].inputs.clone());
            let route = match op {
                Op::Matmul => None,
                Op::ExpertMatmul { used } => Some((self.output_of(inputs[1]), used)),
                _ => continue,
            };
            let (weight, input) = (self.nodes[i].weights[0], self.output_of(inputs[0]));
            products.push(Product { weight, input, route });
        }
        products
    }

    /// Which output `value` is, from now on.
    fn output_of(&mut self, value: Value) -> usize {
        self.outputs.iter().position(|&output| output == value).unwrap_or_else(|| {
            self.outputs.push(value);
            self.outputs.len() - 1
        })
    }

    /// Makes an output of every value that a weight was last applied to and of the last value of every layer; returns
    /// what the outputs after the first one now are, in order. What is computed stays the same on every backend, as an
    /// output is only a value that nobody may overwrite.
    pub fn tap(&mut self) -> Vec<Tap> {
        let taps: Vec<Tap> = (0..self.nodes.len()).flat_map(|i| self.taps_of(i)).collect();
        self.outputs.truncate(1);
        self.outputs.extend(taps.iter().map(|tap| tap.value));
        taps
    }

    fn taps_of(&self, index: usize) -> Option<Tap> {
        let (node, value) = (&self.nodes[index], Value(index as u32));
        if self.outputs.first() == Some(&value) {
            return None;
        }
        let tap = |name: String| Some(Tap { name, layer: node.layer, value });
        if self.nodes.get(index + 1).is_none_or(|next| next.layer != node.layer) {
            let before = self.nodes[..index].iter().all(|n| n.layer.is_none());
            return tap(match node.layer {
                Some(layer) => format!("layer.{layer}"),
                None if before => "embedding".into(),
                None => "end".into(),
            });
        }
        let weight = node.weights.last().filter(|_| !matches!(node.op, Op::Embed))?;
        tap(self.weight(*weight).name.clone())
    }
}
