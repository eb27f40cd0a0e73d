//! Building a graph: one method an op, named as in the literature.
//!
//! Widths that come from a file are checked by whoever reads the weights, with the name of the tensor. A mismatch
//! found here is therefore a file whose hyperparameters contradict each other, or a mistake in an architecture.

use crate::{
    Activation, Attention, Error, GatedDelta, Graph, KvLayer, Node, Op, Rope, Route, Rows, StateLayer, Value,
    Weight, WeightId, shape::shape,
};
use nibble_quant::Encoded;

/// A rotation that an encoding puts around a matrix, so that its numbers are rounded in a basis without outliers.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// Signs, perhaps with magnitudes, for each number.
    pub gain: Weight,
    /// The block of the Hadamard transform.
    pub block: usize,
}

/// A linear layer as files hold it: a matrix and what belongs to it, in the order in which it is applied.
#[derive(Clone, Debug, Default)]
pub struct Linear {
    /// `[K']`: the columns of the input that take part, in the matrix's order; -1 is a column of zeros.
    pub order: Option<Weight>,
    /// Multiplies the input, then transforms it.
    pub rotate: Option<Rotation>,
    /// `[N, K']`, or several `[N, Ki]` side by side, where columns are not all in one encoding.
    pub parts: Vec<Weight>,
    /// Transforms the result, then multiplies it.
    pub unrotate: Option<Rotation>,
    /// Outputs that count, if the matrix has more rows: they fill up a block.
    pub outputs: Option<usize>,
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

    /// A matrix with everything that belongs to it.
    pub fn linear(&mut self, mut x: Value, linear: Linear) -> Result<Value, Error> {
        if let Some(order) = linear.order {
            x = self.weighted(Op::Columns, &[x], order)?;
        }
        if let Some(rotation) = linear.rotate {
            x = self.rotate(x, rotation)?;
        }
        let mut y = self.side_by_side(x, linear.parts)?;
        if let Some(rotation) = linear.unrotate {
            y = self.unrotate(y, rotation)?;
        }
        if let Some(outputs) = linear.outputs {
            y = self.slice(y, self.node(y).width, 0, outputs)?;
        }
        if let Some(scale) = linear.scale {
            y = self.gain(y, scale)?;
        }
        if let Some(bias) = linear.bias {
            y = self.bias(y, bias)?;
        }
        Ok(y)
    }

    /// The product with matrices that share the columns of `x` among them.
    fn side_by_side(&mut self, x: Value, parts: Vec<Weight>) -> Result<Value, Error> {
        let width = self.node(x).width;
        let (mut sum, mut start) = (None, 0);
        let whole = parts.len() == 1;
        for part in parts {
            let len = part.data.shape().row_len();
            let columns = if whole { x } else { self.slice(x, width, start, len)? };
            let product = self.matmul(columns, part)?;
            sum = Some(match sum {
                Some(sum) => self.add(sum, product)?,
                None => product,
            });
            start += len;
        }
        let mismatch = |found: usize| Error {
            place: self.layer.map_or("the graph".into(), |l| format!("layer {l}")),
            op: "matmul",
            expected: format!("matrices of {width} columns together"),
            found: found.to_string(),
        };
        sum.filter(|_| start == width).ok_or_else(|| mismatch(start))
    }

    /// `H(gain * x)`
    pub fn rotate(&mut self, x: Value, rotation: Rotation) -> Result<Value, Error> {
        let x = self.gain(x, rotation.gain)?;
        self.push(Op::Hadamard { block: rotation.block }, &[x], &[])
    }

    /// `gain * H(x)`
    pub fn unrotate(&mut self, x: Value, rotation: Rotation) -> Result<Value, Error> {
        let x = self.push(Op::Hadamard { block: rotation.block }, &[x], &[])?;
        self.gain(x, rotation.gain)
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
        self.attention_with_sinks([q, k, v], None, a)
    }

    /// The same, with scores `[heads]` of one more position whose value is nothing.
    pub fn attention_with_sinks(
        &mut self,
        [q, k, v]: [Value; 3],
        sinks: Option<Weight>,
        a: Attention,
    ) -> Result<Value, Error> {
        let sinks: Vec<_> = sinks.into_iter().map(|sinks| self.add_weight(sinks)).collect();
        self.push(Op::Attention(a), &[q, k, v], &sinks)
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

    /// Adds to each part of a row the row of its expert in `weight` `[E, D]`.
    pub fn expert_bias(&mut self, x: Value, route: Value, weight: Weight) -> Result<Value, Error> {
        let used = self.node(route).width / 2;
        self.weighted(Op::ExpertBias { used }, &[x, route], weight)
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
