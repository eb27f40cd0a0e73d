//! Graph into tape: which nodes become one call, and which kernels run for how many rows.

mod alone;
mod attend;
mod experts;
mod few;
mod norms;
mod products;
mod program;
mod rotated;
mod rounding;
mod tiles;

pub use rotated::Turned;

use crate::{
    build::{Builder, FEW, MOST_GROUPS, Options, call, columns, ints, is_pointwise},
    decode::logits,
    kernels::{chain, combine, embed, gated_delta, hadamard, norm, rope, short_conv, slice},
    pack::halves,
    tape::{Content, Dim, Entry, Fit, SlotInfo, Tape, Variant, Word},
};
use nibble_backend::Error;
use nibble_graph::{Graph, Op, Rows, Value};

/// Compiles a graph whose ops are all known here.
///
/// # Errors
/// [`Error::Unsupported`] for what this device cannot do, [`Error::Memory`] for what it cannot bind.
pub fn tape(graph: &Graph, options: Options<'_>, device: &str) -> Result<Tape, Error> {
    let mut b = Builder::new(graph, options);
    b.find_rotated();
    for i in 0..graph.nodes.len() {
        if !b.done[i] {
            b.node(Value(i as u32), device)?;
        }
    }
    b.tape.outputs = graph.outputs.iter().map(|&v| (b.slot(v), b.value(v).rows, b.value(v).width)).collect();
    if logits(&b.tape.outputs).is_some() {
        b.step("draws");
    }
    prune(&mut b.tape, [b.options.limits.rows, b.options.limits.wanted]);
    b.tape.note_lives();
    if let Some(slot) = b.tape.slots.iter().find(|s| s.bytes > b.options.caps.binding) {
        let what = format!("{} on {device}", slot.content.describe());
        return Err(Error::Memory { what, needed: slot.bytes, available: b.options.caps.binding });
    }
    let rows = |entry: &Entry| count(entry.rows, [b.options.limits.rows, b.options.limits.wanted]);
    let calls = |entry: &Entry| {
        entry.variants.iter().flat_map(|v| &v.calls).map(|call| call.grid).collect::<Vec<_>>()
    };
    let sequences = b.options.limits.sequences;
    let groups = |entry: &Entry| {
        calls(entry).into_iter().flatten().map(|dim| dim.of(rows(entry), sequences)).max().unwrap_or(0)
    };
    if b.tape.entries.iter().any(|entry| groups(entry) as usize > MOST_GROUPS) {
        let what = format!("steps of {} rows", b.options.limits.rows);
        return Err(Error::Unsupported { device: device.into(), what });
    }
    Ok(b.tape)
}

/// Leaves out what runs for more rows than can come.
fn prune(tape: &mut Tape, most: [usize; 2]) {
    for entry in &mut tape.entries {
        let rows = count(entry.rows, most);
        let needed = entry
            .variants
            .iter()
            .position(|v| v.fit.most >= rows && v.fit == Fit::rows(v.fit.most))
            .map_or(entry.variants.len(), |i| i + 1);
        entry.variants.truncate(needed);
    }
}

/// Operands after which a call takes no further transform, each of which may bring as many more.
const MOST_OPERANDS: usize = 12;

impl Builder<'_> {
    fn node(&mut self, value: Value, device: &str) -> Result<(), Error> {
        let node = self.value(value);
        let input = |i: usize| node.inputs[i];
        let width = node.width;
        match &node.op {
            Op::Tokens => self.done[value.0 as usize] = true,
            Op::Given { width } => {
                let given = |slot: &&SlotInfo| matches!(slot.content, Content::Given(..));
                let index = self.tape.slots.iter().filter(given).count();
                let bytes = self.most_rows(node.rows).saturating_mul(4 * width);
                let slot = self.add_slot(Content::Given(index, *width), bytes);
                self.bind(value, slot);
            }
            Op::Embed => self.embed(value)?,
            Op::Matmul | Op::ExpertMatmul { .. } => self.products(value)?,
            op if is_pointwise(op) || self.transforms(op).is_some() => self.element_wise(value),
            // Attention applies it.
            Op::RmsNorm { .. } if self.normed_later(value) => self.done[value.0 as usize] = true,
            Op::RmsNorm { eps } => {
                let (x, weight) = (self.slot(input(0)), self.vector(node.weights[0]));
                let len = self.graph.weight(node.weights[0]).data.shape().elements();
                let y = self.fresh(value);
                self.rms_norm(value, [x, weight, y], len, *eps);
            }
            Op::L2Norm { group, eps } => {
                let x = self.slot(input(0));
                let y = self.fresh(value);
                self.norm(value, norm::l2_norm(), vec![x, y], y, *group, *eps);
            }
            Op::Slice { group, start, len } => {
                let x = self.slot(input(0));
                let y = self.fresh(value);
                let words = ints([width, *group, *start, *len]);
                self.push(value, y, vec![call(slice::slice(), vec![x, y], words, columns(width, 256))]);
            }
            Op::Columns => {
                let (x, numbers) = (self.slot(input(0)), self.vector(node.weights[0]));
                let y = self.fresh(value);
                let words = ints([self.value(input(0)).width, width]);
                let slots = vec![x, numbers, y];
                self.push(value, y, vec![call(slice::columns(), slots, words, columns(width, 256))]);
            }
            // Attention turns it.
            Op::Rope(_) if self.turned_by(value).is_some() => self.done[value.0 as usize] = true,
            Op::Rope(r) => {
                let x = self.slot(input(0));
                let ((turns, by_row), rows) = (self.turns(r), self.step("rows"));
                let y = self.fresh(value);
                let words = ints([width, r.head_dim, r.dims]);
                let shader = rope::rope(r.layout, by_row);
                self.push(value, y, vec![call(shader, vec![rows, turns, x, y], words, columns(width, 256))]);
            }
            Op::Attention(a) => self.attention(value, a),
            Op::ShortConv { state } => {
                let kernel = self.graph.weight(node.weights[0]).data.shape().row_len();
                let (x, weight) = (self.slot(input(0)), self.vector(node.weights[0]));
                let (state, sequences) = (self.state(*state), self.step("sequences"));
                let y = self.fresh(value);
                let grid = [Dim::Fixed(width.div_ceil(64) as u32), Dim::Sequences, Dim::Fixed(1)];
                let slots = vec![sequences, x, weight, state, y];
                self.push(value, y, vec![call(short_conv::short_conv(kernel), slots, ints([width]), grid)]);
            }
            Op::GatedDelta(d) => {
                let mut slots = vec![self.step("sequences")];
                slots.extend((0..5).map(|i| self.slot(input(i))));
                slots.push(self.state(d.state));
                let y = self.fresh(value);
                slots.push(y);
                let blocks = d.value_dim.div_ceil(gated_delta::COLUMNS as usize) as u32;
                let grid = [Dim::Fixed(d.value_heads as u32), Dim::Fixed(blocks), Dim::Sequences];
                self.push(value, y, vec![call(gated_delta::gated_delta(d), slots, vec![], grid)]);
            }
            Op::Route(r) => self.route(value, r),
            Op::ExpertBias { used } => {
                let (x, route) = (self.slot(input(0)), self.slot(input(1)));
                let bias = self.vector(node.weights[0]);
                let y = self.fresh(value);
                let shader = combine::expert_bias(*used);
                let slots = vec![x, route, bias, y];
                let calls = vec![call(shader, slots, ints([width]), columns(width, 256))];
                let mut variants = vec![Variant { fit: Fit::ALL, calls }];
                if self.only_user(value).is_some_and(|user| self.sums.contains_key(&Value(user as u32))) {
                    variants.insert(0, Variant { fit: Fit::rows(FEW), calls: vec![] });
                }
                self.push_variants(value, Some(y), variants);
            }
            Op::Combine { used } => self.combine(value, *used),
            Op::Wanted => {
                let (x, numbers) = (self.slot(input(0)), self.step("wanted"));
                let y = self.fresh(value);
                let slots = vec![numbers, x, y];
                self.push(value, y, vec![call(slice::wanted(), slots, ints([width]), columns(width, 256))]);
            }
            op => {
                return Err(Error::Unsupported { device: device.into(), what: op.name().into() });
            }
        }
        Ok(())
    }

    fn embed(&mut self, value: Value) -> Result<(), Error> {
        let index = self.matrix(&self.value(value).weights[..1])?;
        let rows = self.step("rows");
        let y = self.fresh(value);
        let matrix = self.tape.matrices[index].clone();
        let row_halves = halves(matrix.row_len);
        let calls = matrix.parts.iter().zip(&matrix.planes).enumerate().map(|(part, (range, planes))| {
            let mut slots = vec![rows];
            slots.extend(planes);
            slots.push(y);
            let mut words = ints([range.len(), range.start, row_halves, matrix.row_len]);
            words.push(Word::Factor(index, part));
            call(embed::embed(&matrix.form), slots, words, columns(row_halves, 64))
        });
        let calls = calls.collect();
        self.push(value, y, calls);
        Ok(())
    }

    /// The block of a Hadamard transform that a workgroup can hold.
    fn transforms(&self, op: &Op) -> Option<usize> {
        match *op {
            Op::Hadamard { block } if block * 4 <= self.options.caps.workgroup as usize => Some(block),
            _ => None,
        }
    }

    /// Element-wise nodes and Hadamard transforms of one block that alone read each other.
    fn element_wise(&mut self, value: Value) {
        let node = self.value(value);
        let first = node.inputs[0];
        let x = self.slot(first);
        let mut block = self.transforms(&node.op);
        let (mut chains, mut slots) = (vec![vec![]], vec![]);
        if block.is_some() {
            chains.push(vec![]);
        } else {
            let (link, other, vector) = self.as_link(node, first).expect("an element-wise node");
            chains[0].push(link);
            slots.extend(other.map(|o| self.slot(o)).or(vector));
        }
        self.done[value.0 as usize] = true;
        let made = self.tape.slots.len();
        let mut last = value;
        loop {
            let (end, links, operands) = self.follow(last, made, false);
            last = end;
            chains.last_mut().expect("one at least").extend(links);
            slots.extend(operands);
            let next = self.only_user(last).filter(|_| slots.len() < MOST_OPERANDS);
            let more = next.and_then(|user| self.transforms(&self.graph.nodes[user].op));
            match (next, more) {
                (Some(user), Some(more)) if block.is_none_or(|block| block == more) => {
                    block = Some(more);
                    chains.push(vec![]);
                    last = Value(user as u32);
                }
                _ => break,
            }
        }
        self.mark(value, last);
        let y = self.fresh(last);
        let width = node.width;
        let (shader, grid) = match block {
            None => (chain::pointwise(&chains[0]), columns(width, 256)),
            Some(block) => (hadamard::hadamard(block, &chains), columns(width, block)),
        };
        let slots = [x, y].into_iter().chain(slots).collect();
        let calls = vec![call(shader, slots, ints([width]), grid)];
        self.push_single(last, Some(y), vec![Variant { fit: Fit::ALL, calls }]);
    }

    /// The nodes from `value` to `last` are part of a call.
    fn mark(&mut self, mut value: Value, last: Value) {
        while value != last {
            self.done[value.0 as usize] = true;
            value = Value(self.only_user(value).expect("a chain of only users") as u32);
        }
        self.done[last.0 as usize] = true;
    }
}

/// The rows of a value's kind in a step.
pub fn count(rows: Rows, step: [usize; 2]) -> usize {
    match rows {
        Rows::Tokens => step[0],
        Rows::Wanted => step[1],
    }
}
