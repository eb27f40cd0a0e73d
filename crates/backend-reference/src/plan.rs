//! Whole graphs, op after op.

use crate::{
    Heads, activate, add, attention, bias, columns, combine, embed, expert_bias, expert_matmul, gain, gated,
    gated_delta, hadamard, l2_norm, matmul, mul, rms_norm, rope, round_kv, route, scale, short_conv, slice,
    soft_cap, wanted,
};
use nibble_backend::{
    Backend, Category, Device, Error, KvType, Limits, Memory, PAGE_LEN, Plan, Span, Step, Tracer,
};
use nibble_graph::{Graph, KvLayer, Label, Node, Op, Rows, StateLayer, Value, WeightId};
use std::{collections::BTreeSet, sync::Arc};

/// The device that runs every op by its meaning, for parity and tests.
///
/// It is slow, keeps keys and values as f32 (rounded to what their type would keep), and unlike other devices takes
/// scratch memory while it runs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reference;

impl Backend for Reference {
    fn device(&self) -> Device {
        Device { name: "reference".into(), instructions: "f64 sums".into(), threads: 1 }
    }

    fn available_memory(&self) -> Option<u64> {
        None
    }

    fn runs(&self, _op: &Op) -> bool {
        true
    }

    fn memory(&self, graph: &Graph, limits: &Limits) -> Result<Memory, Error> {
        memory(graph, limits)
    }

    fn compile(&self, graph: &Graph, limits: &Limits) -> Result<Box<dyn Plan>, Error> {
        Ok(Box::new(ReferencePlan::new(graph, limits)?))
    }
}

/// Keys and values of one layer: `[pages, PAGE_LEN, width]` each, rounded to what their type keeps.
struct Bank {
    keys: Vec<f32>,
    values: Vec<f32>,
}

/// A graph with room for its values, keys and states.
pub struct ReferencePlan {
    graph: Graph,
    limits: Limits,
    memory: Memory,
    vocab: usize,
    /// One buffer a node; all are kept until the next step, so that a run can be compared value by value.
    values: Vec<Vec<f32>>,
    /// Vectors and small matrices that ops take as numbers, by weight.
    small: Vec<Vec<f32>>,
    banks: Vec<Bank>,
    /// `[slots, len]` of each state layer.
    states: Vec<Vec<f32>>,
    tokens: usize,
    wanted: usize,
    /// Who is told of each node.
    tracer: Option<Arc<dyn Tracer>>,
    /// What that one is told, by node.
    labels: Vec<Arc<Label>>,
}

impl ReferencePlan {
    /// Reserves memory for steps within `limits`.
    ///
    /// # Errors
    /// [`Error::Memory`] if the sizes overflow or the system has not so much.
    pub fn new(graph: &Graph, limits: &Limits) -> Result<Self, Error> {
        let memory = memory(graph, limits)?;
        let buffer = |n: &Node| zeros("a value", rows(n.rows, limits.rows, limits.wanted) * n.width);
        let positions = limits.pages * PAGE_LEN;
        let bank = |l: &KvLayer| {
            let keys = zeros("a layer's keys", positions * l.kv_heads * l.key_dim)?;
            Ok(Bank { keys, values: zeros("a layer's values", positions * l.kv_heads * l.value_dim)? })
        };
        let state = |s: &StateLayer| zeros("a layer's state", limits.state_slots * s.len);
        Ok(Self {
            memory,
            vocab: graph.vocab(),
            values: graph.nodes.iter().map(buffer).collect::<Result<_, _>>()?,
            small: small_weights(graph),
            banks: graph.kv_layers.iter().map(bank).collect::<Result<_, Error>>()?,
            states: graph.state_layers.iter().map(state).collect::<Result<_, _>>()?,
            tokens: 0,
            wanted: 0,
            tracer: None,
            labels: Vec::new(),
            graph: graph.clone(),
            limits: limits.clone(),
        })
    }

    /// What a node made in the last step: `[rows, width]`.
    pub fn value(&self, value: Value) -> &[f32] {
        let node = self.graph.node(value);
        &self.values[value.0 as usize][..rows(node.rows, self.tokens, self.wanted) * node.width]
    }

    fn run_node(&mut self, index: usize, step: &Step<'_>) {
        let node = self.graph.nodes[index].clone();
        let len = rows(node.rows, self.tokens, self.wanted) * node.width;
        if matches!(node.op, Op::Given { .. }) {
            return;
        }
        let mut y = std::mem::take(&mut self.values[index]);
        self.op(&node.op, &node.inputs, &node.weights, step, &mut y[..len]);
        self.values[index] = y;
    }

    fn op(&mut self, op: &Op, inputs: &[Value], weights: &[WeightId], step: &Step<'_>, y: &mut [f32]) {
        let x = |i: usize| self.value(inputs[i]);
        let width = |i: usize| self.graph.node(inputs[i]).width;
        let encoded = |i: usize| &self.graph.weight(weights[i]).data;
        let numbers = |i: usize| self.small[weights[i].0 as usize].as_slice();
        match op {
            Op::Tokens => y.iter_mut().zip(step.tokens).for_each(|(y, &t)| *y = t as f32),
            Op::Given { .. } => unreachable!("given before the step"),
            Op::Embed => embed(step.tokens, encoded(0), y),
            Op::Matmul => matmul(x(0), encoded(0), y),
            Op::Bias => bias(x(0), numbers(0), y),
            Op::Gain => gain(x(0), numbers(0), y),
            Op::Add => add(x(0), x(1), y),
            Op::Mul => mul(x(0), x(1), y),
            Op::Scale(factor) => scale(x(0), *factor, y),
            Op::Activate(f) => activate(*f, x(0), y),
            Op::Gated(f) => gated(*f, x(0), x(1), y),
            Op::SoftCap(cap) => soft_cap(x(0), *cap, y),
            Op::RmsNorm { eps } => rms_norm(x(0), numbers(0), *eps, y),
            Op::L2Norm { group, eps } => l2_norm(x(0), *group, *eps, y),
            Op::Slice { group, start, len } => slice(x(0), *group, *start..start + len, y),
            Op::Columns => columns(x(0), width(0), numbers(0), y),
            Op::Hadamard { block } => {
                y.copy_from_slice(x(0));
                y.chunks_exact_mut(*block).for_each(hadamard);
            }
            Op::Rope(r) => {
                let rows = x(0).chunks_exact(width(0)).zip(y.chunks_exact_mut(width(0)));
                for (row, (x, y)) in rows.enumerate() {
                    let sequence = &step.sequences[step.sequence[row] as usize];
                    rope(x, r, step.positions[row], sequence.prompt_len, y);
                }
            }
            Op::Attention(a) => {
                let heads = Heads { attention: a.clone(), kv: self.graph.kv_layers[a.cache] };
                self.attend(&heads, inputs, weights.first().copied(), step, y);
            }
            Op::ShortConv { state } => {
                let (input, weight) = (inputs[0].0 as usize, weights[0].0 as usize);
                let width = self.graph.nodes[input].width;
                for (row, y) in y.chunks_exact_mut(width).enumerate() {
                    let past = slot(&mut self.states[*state], self.graph.state_layers[*state].len, step, row);
                    let x = &self.values[input][row * width..(row + 1) * width];
                    short_conv(x, &self.small[weight], past, y);
                }
            }
            Op::GatedDelta(d) => {
                let width = d.value_heads * d.value_dim;
                for (row, y) in y.chunks_exact_mut(width).enumerate() {
                    let state =
                        slot(&mut self.states[d.state], self.graph.state_layers[d.state].len, step, row);
                    let [q, k, v, decay, beta] = std::array::from_fn(|i| {
                        let width = self.graph.node(inputs[i]).width;
                        &self.values[inputs[i].0 as usize][row * width..(row + 1) * width]
                    });
                    gated_delta([q, k, v], decay, beta, d, state, y);
                }
            }
            Op::Route(r) => {
                let bias = (!weights.is_empty()).then(|| numbers(0));
                route(x(0), width(0), bias, r, y);
            }
            Op::ExpertMatmul { used } => expert_matmul(x(0), x(1), *used, encoded(0), y),
            Op::ExpertBias { used } => expert_bias(x(0), x(1), *used, numbers(0), y),
            Op::Combine { used } => combine(x(0), x(1), *used, y),
            Op::Wanted => wanted(x(0), width(0), step.wanted, y),
        }
    }

    /// Keeps the keys and values of all rows, then lets each row see those of its sequence up to itself.
    fn attend(
        &mut self,
        heads: &Heads,
        inputs: &[Value],
        sinks: Option<WeightId>,
        step: &Step<'_>,
        y: &mut [f32],
    ) {
        let layer = heads.kv;
        let (key_width, value_width) = (layer.kv_heads * layer.key_dim, layer.kv_heads * layer.value_dim);
        let kv = self.limits.kv;
        for row in 0..step.tokens.len() {
            let sequence = &step.sequences[step.sequence[row] as usize];
            let at = place(sequence.pages, step.positions[row] as usize);
            let bank = &mut self.banks[heads.attention.cache];
            let key = &self.values[inputs[1].0 as usize][row * key_width..(row + 1) * key_width];
            let value = &self.values[inputs[2].0 as usize][row * value_width..(row + 1) * value_width];
            keep(kv, layer.key_dim, key, &mut bank.keys[at * key_width..(at + 1) * key_width]);
            keep(kv, layer.value_dim, value, &mut bank.values[at * value_width..(at + 1) * value_width]);
        }
        let bank = &self.banks[heads.attention.cache];
        let (q_width, y_width) =
            (heads.attention.heads * layer.key_dim, heads.attention.heads * layer.value_dim);
        let q = self.value(inputs[0]).chunks_exact(q_width);
        let sinks = sinks.map(|id| self.small[id.0 as usize].as_slice());
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        for (row, (q, y)) in q.zip(y.chunks_exact_mut(y_width)).enumerate() {
            if row == 0 || step.sequence[row - 1] != step.sequence[row] {
                keys.clear();
                values.clear();
            }
            let sequence = &step.sequences[step.sequence[row] as usize];
            for position in keys.len() / key_width..=step.positions[row] as usize {
                let at = place(sequence.pages, position);
                keys.extend_from_slice(&bank.keys[at * key_width..(at + 1) * key_width]);
                values.extend_from_slice(&bank.values[at * value_width..(at + 1) * value_width]);
            }
            attention(q, &keys, &values, sinks, heads, y);
        }
    }

    /// Refuses numbers of the last step that are not finite.
    fn check_finite(&self, index: usize) -> Result<(), Error> {
        let value = Value(index as u32);
        Error::not_finite(&self.graph.label(&[value]), self.value(value), self.graph.node(value).width)
    }
}

impl Plan for ReferencePlan {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), Error> {
        step.check(&self.limits, self.vocab, self.graph.is_recurrent())?;
        (self.tokens, self.wanted) = (step.tokens.len(), step.wanted.len());
        for index in 0..self.graph.nodes.len() {
            let start = self.tracer.as_ref().map(|tracer| tracer.now());
            self.run_node(index, step);
            if let (Some(tracer), Some(start)) = (&self.tracer, start) {
                let (label, category) = (&self.labels[index], Category::Op);
                let (end, counts) = (tracer.now(), [("", 0); 3]);
                tracer.span(Span { label, category, thread: 0, start, end, counts });
            }
            if self.limits.check_finite {
                self.check_finite(index)?;
            }
        }
        Ok(())
    }

    fn give(&mut self, input: usize, numbers: &[f32]) -> Result<(), Error> {
        let given = |node: &Node| matches!(node.op, Op::Given { .. });
        let nodes = self.graph.nodes.iter().enumerate().filter(|(_, node)| given(node));
        let Some((index, node)) = nodes.clone().nth(input) else {
            return refuse("input", format!("less than {}", nodes.count()), input);
        };
        nibble_backend::check_given(numbers, node.width, &self.limits)?;
        self.values[index][..numbers.len()].copy_from_slice(numbers);
        Ok(())
    }

    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
        let outputs = self.graph.outputs.len();
        let Some(&value) = self.graph.outputs.get(output) else {
            return refuse("output", format!("less than {outputs}"), output);
        };
        let node = self.graph.node(value);
        let rows = rows(node.rows, self.tokens, self.wanted);
        if row >= rows {
            return refuse("output row", format!("less than {rows}"), row);
        }
        if into.len() != node.width {
            return refuse("length of an output row", node.width.to_string(), into.len());
        }
        into.copy_from_slice(&self.value(value)[row * into.len()..][..into.len()]);
        Ok(())
    }

    fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        let label = |i| Arc::new(self.graph.label(&[Value(i as u32)]));
        self.labels = (0..self.graph.nodes.len()).map(label).collect();
        self.tracer = Some(tracer);
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error> {
        below("page", self.limits.pages, &[from, to])?;
        for bank in &mut self.banks {
            for numbers in [&mut bank.keys, &mut bank.values] {
                copy(numbers, self.limits.pages, from as usize, to as usize);
            }
        }
        Ok(())
    }

    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error> {
        below("state slot", self.limits.state_slots, &[from, to])?;
        for state in &mut self.states {
            copy(state, self.limits.state_slots, from as usize, to as usize);
        }
        Ok(())
    }

    fn clear_state(&mut self, slot: u32) -> Result<(), Error> {
        below("state slot", self.limits.state_slots, &[slot])?;
        for state in &mut self.states {
            let len = state.len() / self.limits.state_slots;
            state[slot as usize * len..][..len].fill(0.0);
        }
        Ok(())
    }
}

/// Copies part `from` of `parts` equal ones over part `to`.
fn copy(numbers: &mut [f32], parts: usize, from: usize, to: usize) {
    let len = numbers.len() / parts;
    numbers.copy_within(from * len..(from + 1) * len, to * len);
}

fn keep(kv: KvType, head_dim: usize, row: &[f32], kept: &mut [f32]) {
    kept.copy_from_slice(row);
    round_kv(kv, head_dim, kept);
}

/// Zeros, or an error where asking for them would end the process.
fn zeros(what: &str, len: usize) -> Result<Vec<f32>, Error> {
    let refuse = |_| Error::Memory { what: what.into(), needed: len as u64 * 4, available: 0 };
    Vec::<f32>::new().try_reserve_exact(len).map_err(refuse)?;
    Ok(vec![0.0; len]) // asked for again, as only so the system gives zeroed memory that is taken when it is used
}

/// The row of a bank that holds a position of a sequence.
fn place(pages: &[u32], position: usize) -> usize {
    pages[position / PAGE_LEN] as usize * PAGE_LEN + position % PAGE_LEN
}

/// The state of a row's sequence in one layer.
fn slot<'a>(state: &'a mut [f32], len: usize, step: &Step<'_>, row: usize) -> &'a mut [f32] {
    let slot = step.sequences[step.sequence[row] as usize].state as usize;
    &mut state[slot * len..(slot + 1) * len]
}

fn rows(kind: Rows, tokens: usize, wanted: usize) -> usize {
    match kind {
        Rows::Tokens => tokens,
        Rows::Wanted => wanted,
    }
}

/// Numbers of the weights that ops take whole; empty for those that are decoded row by row.
fn small_weights(graph: &Graph) -> Vec<Vec<f32>> {
    let mut small = vec![Vec::new(); graph.weights.len()];
    for w in whole_weights(graph) {
        small[w.0 as usize] = graph.weight(w).data.decode();
    }
    small
}

fn whole_weights(graph: &Graph) -> BTreeSet<WeightId> {
    let by_row = |op: &Op| matches!(op, Op::Embed | Op::Matmul | Op::ExpertMatmul { .. });
    graph.nodes.iter().filter(|n| !by_row(&n.op)).flat_map(|n| &n.weights).copied().collect()
}

/// What `ReferencePlan::new` reserves.
fn memory(graph: &Graph, limits: &Limits) -> Result<Memory, Error> {
    let positions = limits.pages.checked_mul(PAGE_LEN);
    let kv = |l: &KvLayer| positions?.checked_mul(l.kv_heads.checked_mul(l.key_dim + l.value_dim)?);
    let values = |n: &Node| rows(n.rows, limits.rows, limits.wanted).checked_mul(n.width);
    Ok(Memory {
        mapped_weights: graph
            .weights
            .iter()
            .filter(|w| !w.data.is_owned())
            .map(|w| w.data.byte_len() as u64)
            .sum(),
        weights: bytes(
            "weights",
            whole_weights(graph).iter().map(|&w| Some(graph.weight(w).data.shape().elements())),
        )?
        .saturating_add(
            graph.weights.iter().filter(|w| w.data.is_owned()).map(|w| w.data.byte_len() as u64).sum(),
        ),
        kv: bytes("keys and values", graph.kv_layers.iter().map(kv))?,
        state: bytes(
            "recurrent state",
            graph.state_layers.iter().map(|s| limits.state_slots.checked_mul(s.len)),
        )?,
        activations: bytes("values", graph.nodes.iter().map(values))?,
    })
}

/// Bytes of so many f32 numbers.
fn bytes(what: &str, mut counts: impl Iterator<Item = Option<usize>>) -> Result<u64, Error> {
    let total = counts.try_fold(0usize, |sum, n| sum.checked_add(n?));
    let bytes = total.and_then(|n| n.checked_mul(4)).filter(|&n| isize::try_from(n).is_ok());
    let too_much = || Error::Memory { what: what.into(), needed: u64::MAX, available: isize::MAX as u64 };
    bytes.map(|n| n as u64).ok_or_else(too_much)
}

fn below(what: &'static str, limit: usize, numbers: &[u32]) -> Result<(), Error> {
    match numbers.iter().find(|&&n| n as usize >= limit) {
        Some(&n) => refuse(what, format!("less than {limit}"), n),
        None => Ok(()),
    }
}

fn refuse(what: &'static str, expected: String, found: impl ToString) -> Result<(), Error> {
    Err(Error::Step { what, expected, found: found.to_string() })
}
