//! Building a graph: one method an op, named as in the literature.
//!
//! Widths that come from a file are checked by whoever reads the weights, with the name of the tensor. A mismatch
//! found here is therefore a file whose hyperparameters contradict each other, or a mistake in an architecture.

use crate::{
    Activation, Attention, Error, GatedDelta, Graph, KvLayer, Node, Op, Rope, Route, Rows, StateLayer, Value,
    Weight, WeightId, shape::shape,
};
use nibble_quant::Encoded;

/// A linear layer as files hold it: a matrix and what belongs to it.
#[derive(Clone, Debug)]
pub struct Linear {
    /// `[N, K]`
    pub weight: Weight,
    /// `[1]` or `[N]`: multiplies the result, for encodings with a scale apart.
    pub scale: Option<Weight>,
    /// `[N]`: added in the end.
    pub bias: Option<Weight>,
}

impl Graph {
    /// Adds a node.
    ///
    /// # Errors
    /// If the op does not fit its inputs and weights.
    pub fn push(&mut self, op: Op, inputs: &[Value], weights: &[WeightId]) -> Result<Value, Error> {
        match shape(self, &op, inputs, weights) {
            Ok((rows, width)) => {
                let node = Node {
                    op,
                    inputs: inputs.to_vec(),
                    weights: weights.to_vec(),
                    rows,
                    width,
                    layer: self.layer,
                };
                self.nodes.push(node);
                Ok(Value(self.nodes.len() as u32 - 1))
            }
            Err((expected, found)) => {
                let place = self.layer.map_or("the graph".into(), |l| format!("layer {l}"));
                Err(Error { place, op: op.name(), expected, found })
            }
        }
    }

    /// Says which layer the nodes that follow belong to.
    pub fn set_layer(&mut self, layer: Option<usize>) {
        self.layer = layer;
    }

    /// The id of a weight; one name is held once.
    pub fn add_weight(&mut self, weight: Weight) -> WeightId {
        let found = self.weights.iter().position(|w| w.name == weight.name);
        let index = found.unwrap_or_else(|| {
            self.weights.push(weight);
            self.weights.len() - 1
        });
        WeightId(index as u32)
    }

    fn weighted(&mut self, op: Op, inputs: &[Value], weight: Weight) -> Result<Value, Error> {
        let weight = self.add_weight(weight);
        self.push(op, inputs, &[weight])
    }

    /// Ids of the step's tokens: `[T]`.
    pub fn tokens(&mut self) -> Result<Value, Error> {
        self.push(Op::Tokens, &[], &[])
    }

    /// Rows of `weight` `[V, D]`.
    pub fn embed(&mut self, tokens: Value, weight: Weight) -> Result<Value, Error> {
        self.weighted(Op::Embed, &[tokens], weight)
    }

    /// `x` times `weight` `[N, K]` transposed.
    pub fn matmul(&mut self, x: Value, weight: Weight) -> Result<Value, Error> {
        self.weighted(Op::Matmul, &[x], weight)
    }

    /// A matrix with its scale and its bias.
    pub fn linear(&mut self, x: Value, linear: Linear) -> Result<Value, Error> {
        let mut y = self.matmul(x, linear.weight)?;
        if let Some(scale) = linear.scale {
            y = self.gain(y, scale)?;
        }
        if let Some(bias) = linear.bias {
            y = self.bias(y, bias)?;
        }
        Ok(y)
    }

    /// `x + weight`
    pub fn bias(&mut self, x: Value, weight: Weight) -> Result<Value, Error> {
        self.weighted(Op::Bias, &[x], weight)
    }

    /// `x * weight`
    pub fn gain(&mut self, x: Value, weight: Weight) -> Result<Value, Error> {
        self.weighted(Op::Gain, &[x], weight)
    }

    /// `a + b`
    pub fn add(&mut self, a: Value, b: Value) -> Result<Value, Error> {
        self.push(Op::Add, &[a, b], &[])
    }

    /// `a * b`
    pub fn mul(&mut self, a: Value, b: Value) -> Result<Value, Error> {
        self.push(Op::Mul, &[a, b], &[])
    }

    /// `x * factor`
    pub fn scale(&mut self, x: Value, factor: f32) -> Result<Value, Error> {
        self.push(Op::Scale(factor), &[x], &[])
    }

    /// `activation(x)`
    pub fn activate(&mut self, activation: Activation, x: Value) -> Result<Value, Error> {
        self.push(Op::Activate(activation), &[x], &[])
    }

    /// `activation(gate) * up`
    pub fn gated(&mut self, activation: Activation, gate: Value, up: Value) -> Result<Value, Error> {
        self.push(Op::Gated(activation), &[gate, up], &[])
    }

    /// `cap * tanh(x / cap)`
    pub fn soft_cap(&mut self, x: Value, cap: f32) -> Result<Value, Error> {
        self.push(Op::SoftCap(cap), &[x], &[])
    }

    /// Root-mean-square norm over groups as long as `weight`.
    pub fn rms_norm(&mut self, x: Value, weight: Weight, eps: f32) -> Result<Value, Error> {
        self.weighted(Op::RmsNorm { eps }, &[x], weight)
    }

    /// Euclidean norm over groups.
    pub fn l2_norm(&mut self, x: Value, group: usize, eps: f32) -> Result<Value, Error> {
        self.push(Op::L2Norm { group, eps }, &[x], &[])
    }

    /// Columns `start..start + len` of every `group` columns.
    pub fn slice(&mut self, x: Value, group: usize, start: usize, len: usize) -> Result<Value, Error> {
        self.push(Op::Slice { group, start, len }, &[x], &[])
    }

    /// Rotary position embedding.
    pub fn rope(&mut self, x: Value, rope: Rope) -> Result<Value, Error> {
        self.push(Op::Rope(rope), &[x], &[])
    }

    /// A new layer of keys and values; returns the number for [`Attention::cache`].
    pub fn add_cache(&mut self, layer: KvLayer) -> usize {
        self.kv_layers.push(layer);
        self.kv_layers.len() - 1
    }

    /// A new layer of recurrent state of `len` numbers a sequence.
    pub fn add_state(&mut self, len: usize) -> usize {
        self.state_layers.push(StateLayer { len });
        self.state_layers.len() - 1
    }

    /// Causal attention.
    pub fn attention(&mut self, q: Value, k: Value, v: Value, a: Attention) -> Result<Value, Error> {
        self.push(Op::Attention(a), &[q, k, v], &[])
    }

    /// Causal depth-wise convolution with `weight` `[D, kernel]`.
    pub fn short_conv(&mut self, x: Value, weight: Weight) -> Result<Value, Error> {
        let past = weight.data.shape().row_len().saturating_sub(1);
        let state = self.add_state(past * self.node(x).width);
        self.weighted(Op::ShortConv { state }, &[x], weight)
    }

    /// The gated delta rule.
    pub fn gated_delta(
        &mut self,
        [q, k, v]: [Value; 3],
        decay: Value,
        beta: Value,
        d: GatedDelta,
    ) -> Result<Value, Error> {
        self.push(Op::GatedDelta(d), &[q, k, v, decay, beta], &[])
    }

    /// Chooses experts from router logits.
    pub fn route(&mut self, logits: Value, bias: Option<Weight>, route: Route) -> Result<Value, Error> {
        let bias: Vec<_> = bias.into_iter().map(|b| self.add_weight(b)).collect();
        self.push(Op::Route(route), &[logits], &bias)
    }

    /// Each row times the matrices of its experts, `weight` `[E, N, K]`.
    pub fn expert_matmul(&mut self, x: Value, route: Value, weight: Weight) -> Result<Value, Error> {
        let used = self.node(route).width / 2;
        self.weighted(Op::ExpertMatmul { used }, &[x, route], weight)
    }

    /// The weighted sum of the experts' results.
    pub fn combine(&mut self, x: Value, route: Value) -> Result<Value, Error> {
        let used = self.node(route).width / 2;
        self.push(Op::Combine { used }, &[x, route], &[])
    }

    /// The rows whose output is wanted.
    pub fn wanted(&mut self, x: Value) -> Result<Value, Error> {
        self.push(Op::Wanted, &[x], &[])
    }

    /// Marks a value to be read after each step.
    pub fn output(&mut self, value: Value) {
        self.outputs.push(value);
    }

    /// The shape that `value` has: (rows, width).
    pub fn shape(&self, value: Value) -> (Rows, usize) {
        (self.node(value).rows, self.node(value).width)
    }
}

impl Weight {
    /// A weight of that name.
    pub fn new(name: impl Into<String>, data: Encoded) -> Self {
        Self { name: name.into(), data }
    }
}
