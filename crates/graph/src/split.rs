//! A graph cut in two at the border of a layer, so that two devices can share it.

use crate::{Error, GatedDelta, Graph, Op, Value, WeightId};
use std::collections::HashMap;

/// Two graphs that are one when what the first leaves is given to the second.
#[derive(Clone, Debug)]
pub struct Split {
    /// What comes before the border. Its first outputs are `given`, then come those of the whole graph that it makes.
    pub first: Graph,
    /// The rest.
    pub second: Graph,
    /// Widths of the first outputs of `first`, which are the [`Op::Given`] of `second` in this order.
    pub given: Vec<usize>,
    /// Where each output of the whole graph is: in the second graph or not, and which output of it.
    pub outputs: Vec<(bool, usize)>,
}

impl Graph {
    /// Layers, counted by the last one's number.
    pub fn layers(&self) -> usize {
        self.nodes.iter().filter_map(|node| node.layer).max().map_or(0, |last| last + 1)
    }

    /// Cuts the graph before layer `border`, or behind all layers if it is [`Self::layers`].
    ///
    /// # Errors
    /// Never for a graph built by [`Graph::push`]; the rules are checked again all the same.
    pub fn split(&self, border: usize) -> Result<Split, Error> {
        let behind = |layer: Option<usize>| layer.is_some_and(|layer| layer >= border);
        let last = self.nodes.iter().rposition(|node| node.layer.is_some()).map_or(0, |last| last + 1);
        let at = self.nodes.iter().position(|node| behind(node.layer)).unwrap_or(last);
        let crosses = |value: usize| {
            let used = self.nodes[at..].iter().any(|node| node.inputs.contains(&Value(value as u32)));
            used && !matches!(self.nodes[value].op, Op::Tokens)
        };
        let crossing: Vec<Value> = (0..at).filter(|&v| crosses(v)).map(|v| Value(v as u32)).collect();
        let mut first = Part::new(self);
        for i in 0..at {
            first.copy(i)?;
        }
        let mut second = Part::new(self);
        for &value in &crossing {
            second.give(value)?;
        }
        for i in at..self.nodes.len() {
            second.copy(i)?;
        }
        first.graph.outputs = crossing.iter().map(|v| first.values[v]).collect();
        let place = |value: &Value| {
            let (is_second, part) =
                if (value.0 as usize) < at { (false, &mut first) } else { (true, &mut second) };
            part.graph.outputs.push(part.values[value]);
            (is_second, part.graph.outputs.len() - 1)
        };
        let outputs = self.outputs.iter().map(place).collect();
        let given = crossing.iter().map(|&v| self.node(v).width).collect();
        Ok(Split { first: first.graph, second: second.graph, given, outputs })
    }
}

/// A part of a graph on its way.
struct Part<'a> {
    whole: &'a Graph,
    graph: Graph,
    values: HashMap<Value, Value>,
    weights: HashMap<WeightId, WeightId>,
    kv: HashMap<usize, usize>,
    states: HashMap<usize, usize>,
}

impl<'a> Part<'a> {
    fn new(whole: &'a Graph) -> Self {
        Self {
            whole,
            graph: Graph::default(),
            values: HashMap::new(),
            weights: HashMap::new(),
            kv: HashMap::new(),
            states: HashMap::new(),
        }
    }

    /// What another part makes comes from outside.
    fn give(&mut self, value: Value) -> Result<(), Error> {
        let node = self.whole.node(value);
        self.graph.set_layer(node.layer);
        let given = self.graph.push(Op::Given { width: node.width }, &[], &[])?;
        self.values.insert(value, given);
        Ok(())
    }

    fn copy(&mut self, index: usize) -> Result<(), Error> {
        let node = &self.whole.nodes[index];
        self.graph.set_layer(node.layer);
        let mut inputs = vec![];
        for &input in &node.inputs {
            if !self.values.contains_key(&input) {
                // Every part knows the step's tokens.
                let tokens = self.graph.push(Op::Tokens, &[], &[])?;
                self.values.insert(input, tokens);
            }
            inputs.push(self.values[&input]);
        }
        let mut weights = vec![];
        for &id in &node.weights {
            let (graph, whole) = (&mut self.graph, self.whole);
            let copy = || graph.add_weight(whole.weight(id).clone());
            weights.push(*self.weights.entry(id).or_insert_with(copy));
        }
        let mut op = node.op.clone();
        match &mut op {
            Op::Attention(a) => {
                let (layers, whole) = (&mut self.graph.kv_layers, self.whole.kv_layers[a.cache]);
                a.cache = *self.kv.entry(a.cache).or_insert_with(|| pushed(layers, whole));
            }
            Op::ShortConv { state } | Op::GatedDelta(GatedDelta { state, .. }) => {
                let (layers, whole) = (&mut self.graph.state_layers, self.whole.state_layers[*state]);
                *state = *self.states.entry(*state).or_insert_with(|| pushed(layers, whole));
            }
            _ => {}
        }
        let value = self.graph.push(op, &inputs, &weights)?;
        self.values.insert(Value(index as u32), value);
        Ok(())
    }
}

/// Adds an item; returns its place.
fn pushed<T>(list: &mut Vec<T>, item: T) -> usize {
    list.push(item);
    list.len() - 1
}
