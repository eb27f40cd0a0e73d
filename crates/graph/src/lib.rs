//! A model's computation as a list of ops over values `[rows, width]`, known to every backend.
//!
//! The number of rows is unknown until a step runs: `T` rows of tokens, or the `W` of them whose logits are wanted.
//! Everything else (widths, weights, cache layers) is fixed when the graph is built, and each op checks it
//! ([`Graph::push`]), so a graph that exists is well formed.
#![forbid(unsafe_code)]

mod build;
mod dump;
mod error;
mod expand;
mod label;
mod op;
mod shape;
mod split;
mod tap;

pub use build::{Linear, Rotation};
pub use error::Error;
pub use label::Label;
pub use op::{Activation, Attention, Frequencies, GatedDelta, Op, Rope, RopeLayout, Route, Scoring};
pub use split::Split;
pub use tap::{Product, Tap};

use nibble_quant::Encoded;

/// A value of the graph: the result of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A weight of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WeightId(pub u32);

/// How many rows a value has in a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// One for every token of the step: `T`.
    Tokens,
    /// One for every token whose output is wanted: `W`.
    Wanted,
}

/// A named weight, in the encoding that its file has.
#[derive(Clone, Debug)]
pub struct Weight {
    /// Its canonical name: `layer.3.attn.q`.
    pub name: String,
    /// Shape, codec and bytes.
    pub data: Encoded,
}

/// One op, what it reads, and the shape of what it makes.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// Values read, in the order that the op says.
    pub inputs: Vec<Value>,
    /// Weights read, in the order that the op says.
    pub weights: Vec<WeightId>,
    /// Rows of the result.
    pub rows: Rows,
    /// Numbers in a row of the result.
    pub width: usize,
    /// The layer it belongs to, for dumps and error messages; `None` before the first and after the last.
    pub layer: Option<usize>,
}

/// Keys and values that one attention layer keeps for every position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KvLayer {
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Numbers in a key.
    pub key_dim: usize,
    /// Numbers in a value.
    pub value_dim: usize,
}

/// What one recurrent layer keeps for every sequence: `len` numbers (f32), all zero at the start of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StateLayer {
    /// Numbers kept.
    pub len: usize,
}

/// A computation from tokens to outputs.
#[derive(Clone, Debug, Default)]
pub struct Graph {
    /// Nodes in an order in which they can run; node `i` makes `Value(i)`.
    pub nodes: Vec<Node>,
    /// Weights, each held once.
    pub weights: Vec<Weight>,
    /// Attention layers; [`Attention::cache`] points here.
    pub kv_layers: Vec<KvLayer>,
    /// Recurrent layers; [`Op::ShortConv`] and [`GatedDelta::state`] point here.
    pub state_layers: Vec<StateLayer>,
    /// The values to be read after a step; the first one holds the logits.
    pub outputs: Vec<Value>,
    /// The layer that nodes pushed now belong to.
    layer: Option<usize>,
}

impl Graph {
    /// The node that makes `value`.
    pub fn node(&self, value: Value) -> &Node {
        &self.nodes[value.0 as usize]
    }

    /// The nodes that read each value, in order; `None` for an output.
    pub fn users(&self) -> Vec<Vec<Option<usize>>> {
        let mut users = vec![Vec::new(); self.nodes.len()];
        for (i, node) in self.nodes.iter().enumerate() {
            node.inputs.iter().for_each(|v| users[v.0 as usize].push(Some(i)));
        }
        self.outputs.iter().for_each(|v| users[v.0 as usize].push(None));
        users
    }

    /// The weight `id` stands for.
    pub fn weight(&self, id: WeightId) -> &Weight {
        &self.weights[id.0 as usize]
    }

    /// Tokens that it knows: the rows of the weight that embeds them; any, if nothing does.
    pub fn vocab(&self) -> usize {
        let embeds = self.nodes.iter().filter(|node| matches!(node.op, Op::Embed));
        embeds.map(|node| self.weight(node.weights[0]).data.shape().rows()).min().unwrap_or(usize::MAX)
    }

    /// Whether any sequence state beside keys and values is kept.
    pub fn is_recurrent(&self) -> bool {
        !self.state_layers.is_empty()
    }

    /// Whether rotary frequencies depend on the length of the prompt ([`Frequencies::Dynamic`]).
    pub fn depends_on_prompt_len(&self) -> bool {
        let dynamic =
            |n: &Node| matches!(&n.op, Op::Rope(r) if matches!(r.frequencies, Frequencies::Dynamic { .. }));
        self.nodes.iter().any(dynamic)
    }
}

#[cfg(test)]
mod tests;
