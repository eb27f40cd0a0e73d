//! Compound ops rewritten into simpler ones, for backends that do not run them as they are.

use crate::{Activation, Error, Graph, Op, Value};

impl Graph {
    /// The same graph with every op that `runs` refuses replaced by its expansion, where it has one.
    ///
    /// An op without expansion stays: the backend then refuses it by name.
    ///
    /// # Errors
    /// Never for a graph built by [`Graph::push`]; the rules are checked again all the same.
    pub fn expanded(&self, runs: impl Fn(&Op) -> bool) -> Result<Self, Error> {
        let mut out = Self {
            weights: self.weights.clone(),
            kv_layers: self.kv_layers.clone(),
            state_layers: self.state_layers.clone(),
            ..Self::default()
        };
        let mut moved: Vec<Value> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            out.set_layer(node.layer);
            let inputs: Vec<_> = node.inputs.iter().map(|v| moved[v.0 as usize]).collect();
            let value = match &node.op {
                op if runs(op) => out.push(op.clone(), &inputs, &node.weights)?,
                Op::Gated(activation) => {
                    let gate = out.activate(*activation, inputs[0])?;
                    out.mul(gate, inputs[1])?
                }
                Op::SoftCap(cap) => {
                    let x = out.scale(inputs[0], cap.recip())?;
                    let x = out.activate(Activation::Tanh, x)?;
                    out.scale(x, *cap)?
                }
                op => out.push(op.clone(), &inputs, &node.weights)?,
            };
            moved.push(value);
        }
        out.outputs = self.outputs.iter().map(|v| moved[v.0 as usize]).collect();
        out.set_layer(None);
        Ok(out)
    }
}
