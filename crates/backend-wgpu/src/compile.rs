//! Graph into tape: which nodes become one call, and which kernels run for how many rows.

use crate::{
    build::{Builder, FEW, Held, MOST_GROUPS, Options, call, columns, ints, is_pointwise},
    form::Form,
    kernels::{
        attention::{self, Runs},
        chain,
        chain::Link,
        combine, embed, gated_delta,
        gemm::{self, Tiles},
        gemv::{self, Choice, Gemv, Input, Round},
        hadamard, kv, norm, quantize, rope, route, short_conv, slice,
    },
    pack::halves,
    shader::Shader,
    tape::{Call, Content, Dim, Slot, Tape, Variant, Word},
};
use nibble_backend::Error;
use nibble_graph::{Activation, Attention, Graph, Op, Rows, Value, WeightId};

/// Compiles a graph whose ops are all known here.
///
/// # Errors
/// [`Error::Unsupported`] for what this device cannot do, [`Error::Memory`] for what it cannot bind.
pub fn tape(graph: &Graph, options: Options<'_>, device: &str) -> Result<Tape, Error> {
    let mut b = Builder::new(graph, options);
    for i in 0..graph.nodes.len() {
        if !b.done[i] {
            b.node(Value(i as u32), device)?;
        }
    }
    b.tape.outputs = graph.outputs.iter().map(|&v| (b.slot(v), b.value(v).rows, b.value(v).width)).collect();
    prune(&mut b.tape, [b.options.limits.rows, b.options.limits.wanted]);
    b.tape.note_lives();
    if let Some(slot) = b.tape.slots.iter().find(|s| s.bytes > b.options.caps.binding) {
        let what = format!("{} on {device}", slot.content.describe());
        return Err(Error::Memory { what, needed: slot.bytes, available: b.options.caps.binding });
    }
    if b.options.limits.rows > MOST_GROUPS {
        let what = format!("steps of more than {MOST_GROUPS} rows");
        return Err(Error::Unsupported { device: device.into(), what });
    }
    Ok(b.tape)
}

/// Leaves out what runs for more rows than can come.
fn prune(tape: &mut Tape, most: [usize; 2]) {
    for entry in &mut tape.entries {
        let rows = count(entry.rows, most);
        let needed =
            entry.variants.iter().position(|v| v.most >= rows).map_or(entry.variants.len(), |i| i + 1);
        entry.variants.truncate(needed);
    }
}

/// What follows a product: links and their buffers, the output and its width.
type End = (Vec<Link>, Vec<Slot>, Slot, usize);

/// Products of one input that become one call.
struct Group {
    weights: Vec<WeightId>,
    /// The second matrix of a gate, with the gate.
    gate: Option<(WeightId, Activation)>,
    /// One for each product.
    ends: Vec<End>,
}

/// Where a result goes rounded.
struct Rounding {
    /// Codes and scales.
    held: [Slot; 2],
    /// Weight of a norm behind it, and where sums of squares go.
    norm: Option<[Slot; 2]>,
}

/// Results that a workgroup rounds together.
const BLOCK: usize = 32;

/// Results that a subgroup makes at once, and pieces of a row that a lane asks for ahead, by rows of the input.
fn sizes(tile: usize, gate: bool, round: bool) -> (usize, usize) {
    match (tile, gate, round) {
        (1, false, false) => (2, 4),
        (1, false, true) => (1, 4),
        (1, true, _) => (2, 2),
        (4, false, false) => (4, 1),
        (4, _, _) => (2, 2),
        (_, false, false) => (4, 1),
        _ => (2, 1),
    }
}

impl Builder<'_> {
    fn node(&mut self, value: Value, device: &str) -> Result<(), Error> {
        let node = self.value(value);
        let input = |i: usize| node.inputs[i];
        let width = node.width;
        match &node.op {
            Op::Tokens => self.done[value.0 as usize] = true,
            Op::Embed => self.embed(value)?,
            Op::Matmul | Op::ExpertMatmul { .. } => self.products(value)?,
            op if is_pointwise(op) => self.pointwise(value),
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
            Op::Hadamard { block } if block * 4 <= self.options.caps.workgroup as usize => {
                let x = self.slot(input(0));
                let y = self.fresh(value);
                let blocks = width / block;
                let grid = [Dim::Fixed(blocks as u32), Dim::Rows(1, 1), Dim::Fixed(1)];
                let shader = hadamard::hadamard(*block);
                self.push(value, y, vec![call(shader, vec![x, y], ints([blocks]), grid)]);
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
            Op::Attention(a) => self.attention(value, a, device)?,
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
            Op::Route(r) => {
                let logits = self.slot(input(0));
                let bias = node.weights.first().map(|&w| self.vector(w));
                let y = self.fresh(value);
                let shader = route::route(r, self.value(input(0)).width, bias.is_some());
                let slots = [logits].into_iter().chain(bias).chain([y]).collect();
                let grid = [Dim::Fixed(1), Dim::Rows(1, 1), Dim::Fixed(1)];
                self.push(value, y, vec![call(shader, slots, vec![], grid)]);
            }
            Op::ExpertBias { used } => {
                let (x, route) = (self.slot(input(0)), self.slot(input(1)));
                let bias = self.vector(node.weights[0]);
                let y = self.fresh(value);
                let shader = combine::expert_bias(*used);
                let slots = vec![x, route, bias, y];
                self.push(value, y, vec![call(shader, slots, ints([width]), columns(width, 256))]);
            }
            Op::Combine { used } => {
                let (x, route) = (self.slot(input(0)), self.slot(input(1)));
                let y = self.fresh(value);
                let shader = combine::combine(*used);
                self.push(
                    value,
                    y,
                    vec![call(shader, vec![x, route, y], ints([width]), columns(width, 256))],
                );
            }
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

    fn norm(&mut self, value: Value, shader: Shader, slots: Vec<Slot>, y: Slot, len: usize, eps: f32) {
        let call = self.norm_call(value, shader, slots, len, eps);
        self.push(value, y, vec![call]);
    }

    fn norm_call(&self, value: Value, shader: Shader, slots: Vec<Slot>, len: usize, eps: f32) -> Call {
        let groups = self.value(value).width / len;
        let words = vec![Word::Int(len as u32), Word::Int(groups as u32), Word::Float(eps)];
        call(shader, slots, words, [Dim::Fixed(groups as u32), Dim::Rows(1, 1), Dim::Fixed(1)])
    }

    /// A norm, which for few rows also rounds its result if products read it.
    fn rms_norm(&mut self, value: Value, [x, weight, y]: [Slot; 3], len: usize, eps: f32) {
        let plain = self.norm_call(value, norm::rms_norm(), vec![x, weight, y], len, eps);
        if self.scaled_late.contains_key(&value) {
            let few = Variant { most: self.few(), calls: vec![] };
            return self.push_variants(
                value,
                Some(y),
                vec![few, Variant { most: usize::MAX, calls: vec![plain] }],
            );
        }
        let [codes, others] = self.readers(value);
        if !codes || len != self.value(value).width {
            return self.push(value, y, vec![plain]);
        }
        let row_halves = halves(len);
        let most = self.few_rows(self.value(value).rows);
        let held = [16, 8].map(|bytes| self.add_slot(Content::Value, most * row_halves * bytes));
        self.held.insert((value, 1, Held::CodesFew), held);
        let slots = [x, weight, held[0], held[1]].into_iter().chain(others.then_some(y)).collect();
        let words = vec![Word::Int(row_halves as u32), Word::Int(len as u32), Word::Float(eps)];
        let grid = [Dim::Fixed(1), Dim::Rows(1, 1), Dim::Fixed(1)];
        let rounding = call(norm::rms_norm_codes(others), slots, words, grid);
        let few = Variant { most: self.few(), calls: vec![rounding] };
        self.push_variants(value, Some(y), vec![few, Variant { most: usize::MAX, calls: vec![plain] }]);
    }

    /// Whether products of codes read `value` whole, and whether anything else reads it, for few rows.
    fn readers(&mut self, value: Value) -> [bool; 2] {
        // Without fusing, every result is looked at.
        let mut readers = [false, !self.options.fuse];
        for user in self.users(value) {
            let node = user.map(|user| &self.graph.nodes[user]);
            let product = node.is_some_and(|node| {
                let whole = match node.op {
                    Op::Matmul => true,
                    Op::ExpertMatmul { .. } => {
                        let k = self.graph.weight(node.weights[0]).data.shape().row_len();
                        node.inputs[0] == value && node.inputs[1] != value && k == self.value(value).width
                    }
                    _ => false,
                };
                whole && self.by_codes(node.weights[0])
            });
            readers[usize::from(!product)] = true;
        }
        readers
    }

    /// The attention that turns the result of a rotation itself: that of queries and keys alike.
    fn turned_by(&self, value: Value) -> Option<usize> {
        let user = self.only_user(value)?;
        let node = &self.graph.nodes[user];
        let Op::Attention(a) = &node.op else { return None };
        let rope = |i: usize| match &self.value(node.inputs[i]).op {
            Op::Rope(rope) if self.only_user(node.inputs[i]) == Some(user) => Some(rope),
            _ => None,
        };
        let same = rope(0).is_some() && rope(0) == rope(1) && node.inputs[2] != value;
        let fits = rope(0).is_some_and(|r| r.head_dim == self.graph.kv_layers[a.cache].key_dim);
        (same && fits).then_some(user)
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

    fn pointwise(&mut self, value: Value) {
        let node = self.value(value);
        let first = node.inputs[0];
        let x = self.slot(first);
        let (link, other, vector) = self.as_link(node, first).expect("an element-wise node");
        let (mut links, mut slots) = (vec![link], vec![]);
        slots.extend(other.map(|o| self.slot(o)).or(vector));
        self.done[value.0 as usize] = true;
        let made = self.tape.slots.len();
        let (last, more, operands) = self.follow(value, made, false);
        links.extend(more);
        slots.extend(operands);
        self.mark(value, last);
        let y = self.fresh(last);
        let width = node.width;
        let shader = chain::pointwise(&links);
        let slots = [x, y].into_iter().chain(slots).collect();
        self.push(last, y, vec![call(shader, slots, ints([width]), columns(width, 256))]);
    }

    /// The nodes from `value` to `last` are part of a call.
    fn mark(&mut self, mut value: Value, last: Value) {
        while value != last {
            self.done[value.0 as usize] = true;
            value = Value(self.only_user(value).expect("a chain of only users") as u32);
        }
        self.done[last.0 as usize] = true;
    }

    fn attention(&mut self, value: Value, a: &Attention, device: &str) -> Result<(), Error> {
        let layer = self.graph.kv_layers[a.cache];
        let limits = self.options.limits;
        let unsupported = |what| Error::Unsupported { device: device.into(), what };
        let bank = kv::Bank::new(layer, limits.kv)
            .ok_or_else(|| unsupported(format!("keys and values as {}", limits.kv)))?;
        let inputs = self.value(value).inputs.clone();
        let turn = match &self.value(inputs[0]).op {
            Op::Rope(rope) if self.turned_by(inputs[0]).is_some() => Some(rope),
            _ => None,
        };
        let source = |b: &Self, i: usize| match turn {
            Some(_) if i < 2 => b.slot(b.value(inputs[i]).inputs[0]),
            _ => b.slot(inputs[i]),
        };
        let [mut q, k, v] = [0, 1, 2].map(|i| source(self, i));
        let (rows, sequences, pages) = (self.step("rows"), self.step("sequences"), self.step("pages"));
        let [keys, values] = self.bank(a.cache, bank.page_words());
        let [key, val] = bank.row_words();
        let mut words = (key + val) as usize * layer.kv_heads;
        let mut slots = vec![rows, sequences, pages, k, v, keys, values];
        let write = match turn {
            None => kv::write(&bank, None),
            Some(rope) => {
                let (table, by_row) = self.turns(rope);
                let width = a.heads * layer.key_dim;
                let turned = self.scratch(self.value(value).rows, width * 4);
                slots.extend([table, q, turned]);
                (q, words) = (turned, words + width);
                kv::write(
                    &bank,
                    Some(&kv::Turn { layout: rope.layout, dims: rope.dims, by_row, heads: a.heads }),
                )
            }
        };
        let write = call(write, slots, vec![], columns(words, 64));
        let y = self.fresh(value);
        let heads = attention::Heads::new(a, &bank);
        let groups = (layer.kv_heads * heads.groups) as u32;
        let runs = attention::runs(limits.context);
        let few = limits.rows.min(FEW);
        let [sums, stats] = [bank.layer.value_dim * 4, 8]
            .map(|bytes| self.add_slot(Content::Value, (few * a.heads * bytes).saturating_mul(runs)));
        let sinks = self.value(value).weights.first().map(|&w| self.vector(w));
        let attend = |how: Runs| {
            let (ends, z) = match how {
                Runs::Apart => (vec![sums, stats], runs as u32),
                _ => ([y].into_iter().chain(sinks).collect(), 1),
            };
            let slots = [rows, sequences, pages, q, keys, values].into_iter().chain(ends).collect();
            let grid = [Dim::Fixed(groups), Dim::Rows(1, 1), Dim::Fixed(z)];
            call(attention::attend(a, &bank, how, sinks.is_some()), slots, ints([runs]), grid)
        };
        // For few rows the result is rounded at once if products alone read it.
        let codes = layer.value_dim.is_multiple_of(32) && self.readers(value) == [true, false];
        let ends = if codes {
            let row_halves = halves(self.value(value).width);
            let most = self.few_rows(self.value(value).rows);
            let held = [16, 8].map(|bytes| self.add_slot(Content::Value, most * row_halves * bytes));
            self.held.insert((value, 1, Held::CodesFew), held);
            held.to_vec()
        } else {
            vec![y]
        };
        let join = call(
            attention::join(a, &bank, codes, self.options.strict, sinks.is_some()),
            [rows, sums, stats].into_iter().chain(ends).chain(sinks).collect(),
            ints([runs]),
            [Dim::Fixed(a.heads as u32), Dim::Rows(1, 1), Dim::Fixed(1)],
        );
        let whole = if self.options.strict { Runs::InTurn } else { Runs::One };
        let mut many = vec![write.clone(), attend(whole)];
        if let (true, Some(&held)) = (self.options.strict, self.held.get(&(value, 1, Held::CodesFew))) {
            many.push(quantize_call(y, held, self.value(value).width, 1));
        }
        let mut variants = vec![Variant { most: few, calls: vec![write.clone(), attend(Runs::Apart), join] }];
        variants.push(Variant { most: usize::MAX, calls: many });
        self.push_variants(value, Some(y), variants);
        Ok(())
    }

    /// All products of the input of `value`, with what follows them.
    fn products(&mut self, value: Value) -> Result<(), Error> {
        let node = self.value(value);
        let experts = matches!(node.op, Op::ExpertMatmul { .. });
        let form = self.form(node.weights[0]);
        let same = |b: &mut Self, i: usize| {
            let other = &b.graph.nodes[i];
            !b.done[i]
                && std::mem::discriminant(&other.op) == std::mem::discriminant(&node.op)
                && other.inputs == node.inputs
                && b.form(other.weights[0]) == form
        };
        let first = value.0 as usize;
        let end = if self.options.fuse { self.graph.nodes.len() } else { first + 1 };
        let members: Vec<Value> =
            (first..end).filter(|&i| i == first || same(self, i)).map(|i| Value(i as u32)).collect();
        for group in self.groups(&members, experts) {
            let last = group.1;
            self.product(value, last, group.0, &form)?;
        }
        Ok(())
    }

    /// Divides products of one input into calls: pairs joined by a gate, and the rest stacked (experts one by one).
    fn groups(&mut self, members: &[Value], experts: bool) -> Vec<(Group, Value)> {
        let made = self.tape.slots.len();
        let mut left = members.to_vec();
        let mut groups = vec![];
        while let Some(gate) = left.iter().copied().find(|&m| self.gate_of(m, &left).is_some()) {
            let (up, node) = self.gate_of(gate, &left).expect("just found");
            let Op::Gated(f) = self.value(node).op else { unreachable!("gate_of finds gates") };
            left.retain(|&m| m != gate && m != up);
            self.done[gate.0 as usize] = true;
            self.done[up.0 as usize] = true;
            let weights = vec![self.value(gate).weights[0]];
            let second = self.value(up).weights[0];
            let end = self.end(node, made, experts);
            let last = end.1;
            groups.push((Group { weights, gate: Some((second, f)), ends: vec![end.0] }, last));
        }
        let per_call = if experts { 1 } else { left.len().max(1) };
        for members in left.chunks(per_call) {
            let weights = members.iter().map(|&m| self.value(m).weights[0]).collect();
            let ends: Vec<_> = members.iter().map(|&m| self.end(m, made, experts)).collect();
            let last = ends[ends.len() - 1].1;
            groups.push((Group { weights, gate: None, ends: ends.into_iter().map(|e| e.0).collect() }, last));
        }
        groups
    }

    /// What follows a product: links, their buffers, the output and its width.
    fn end(&mut self, value: Value, made: usize, experts: bool) -> (End, Value) {
        let (last, links, slots) = self.follow(value, made, experts);
        self.mark(value, last);
        let node = self.value(last);
        let width = match (experts, &self.value(last).op) {
            (true, _) => node.width / self.used_by(value),
            _ => node.width,
        };
        let y = self.fresh(last);
        ((links, slots, y, width), last)
    }

    /// Experts of a row, for a node behind a product of experts.
    fn used_by(&self, value: Value) -> usize {
        match &self.value(value).op {
            Op::ExpertMatmul { used } => *used,
            _ => self.used_by(self.value(value).inputs[0]),
        }
    }

    /// The product that is the second operand of the gate that alone reads `gate`, and the gate.
    fn gate_of(&self, gate: Value, members: &[Value]) -> Option<(Value, Value)> {
        let user = self.only_user(gate)?;
        let node = &self.graph.nodes[user];
        let is_gate = matches!(node.op, Op::Gated(_)) && node.inputs[0] == gate;
        let up = *members.iter().find(|m| is_gate && **m == node.inputs[1])?;
        let fits = up != gate && self.value(up).width == self.value(gate).width;
        (fits && self.only_user(up).is_some()).then_some((up, Value(user as u32)))
    }

    fn product(&mut self, value: Value, last: Value, group: Group, form: &Form) -> Result<(), Error> {
        let node = self.value(value);
        let first = self.matrix(&group.weights)?;
        let second = group.gate.map(|(w, _)| self.matrix(&[w])).transpose()?;
        let shape = self.graph.weight(node.weights[0]).data.shape();
        let (k, row_halves) = (shape.row_len(), halves(shape.row_len()));
        let input = node.inputs[0];
        let (choice, parts) = match node.op {
            Op::ExpertMatmul { used } => {
                let own = self.value(input).width != k;
                (Choice::Experts { used, own }, if own { used } else { 1 })
            }
            _ => (Choice::All, 1),
        };
        let (tiles, more) = self.tiles(node.rows);
        let strict = self.options.strict;
        let codes = self.by_codes(node.weights[0]);
        let by_matrix = choice == Choice::All && more && !strict;
        let coop = self.coop(self.tape.matrices[first].parts[0].len());
        // The input in the forms that the kernels below read.
        let mut wanted = vec![];
        if codes {
            wanted.push(Held::CodesFew);
            if more && !by_matrix && !(strict && choice == Choice::All) {
                wanted.push(Held::CodesMany);
            }
        }
        if by_matrix && !coop.is_empty() {
            wanted.push(Held::Halves);
        }
        self.hold(value, input, parts, k, &wanted);

        let x = self.slot(input);
        let few_input = if codes {
            Input::Codes
        } else if k % 16 == 0 {
            Input::Floats
        } else {
            Input::Ragged
        };
        let route = (choice != Choice::All).then(|| self.slot(node.inputs[1]));
        let each = if choice == Choice::All { None } else { Some(shape.dims()[1]) };
        let mut variants = vec![];
        let round = self.rounding(last, &group, choice);
        let late = self.scaled_late.get(&input).copied().filter(|_| codes);
        let gemv_calls = |b: &Self, tile: usize, held: Held| -> Vec<Call> {
            let links: Vec<Vec<Link>> = group.ends.iter().map(|e| e.0.clone()).collect();
            let few = held == Held::CodesFew;
            let (round, late) = (round.as_ref().filter(|_| few), late.filter(|_| few));
            let lanes = b.options.caps.subgroup;
            let (per_sub, ahead) = sizes(tile, group.gate.is_some(), round.is_some());
            let threads = if round.is_some() { lanes[0] * (BLOCK / per_sub) as u32 } else { 128 };
            let subs = (threads / lanes[0]).clamp(1, 16) as usize;
            let g = Gemv {
                form,
                input: few_input,
                tile,
                per_sub,
                threads,
                per_group: if round.is_some() { BLOCK } else { per_sub * subs },
                gate: group.gate.map(|g| g.1),
                products: &links,
                choice,
                ahead,
                even: lanes[0] == lanes[1] && row_halves.is_multiple_of(lanes[0] as usize * ahead),
                norm: late.map(|late| late.1),
                round: round.map(|r| if r.norm.is_some() { Round::ForNorm } else { Round::Plain }),
            };
            let shader = gemv::gemv(&g);
            let matrix = &b.tape.matrices[first];
            let mut calls = vec![];
            for (part, range) in matrix.parts.iter().enumerate() {
                let mut slots = if codes { b.held[&(input, parts, held)].to_vec() } else { vec![x] };
                slots.extend(late.map(|late| late.0));
                slots.extend(&matrix.planes[part]);
                let mut words = ints([range.len(), range.start, row_halves, k]);
                words.push(Word::Factor(first, part));
                if let Some(second) = second {
                    slots.extend(&b.tape.matrices[second].planes[part]);
                    words.push(Word::Factor(second, part));
                }
                slots.extend(route);
                words.extend(each.map(|n| Word::Int(n as u32)));
                for (_, operands, y, width) in &group.ends {
                    slots.push(*y);
                    slots.extend(operands);
                    words.push(Word::Int(*width as u32));
                }
                if let Some(round) = round {
                    slots.extend(round.held);
                    slots.extend(round.norm.iter().flatten());
                }
                let n = each.unwrap_or(range.len());
                let rows = match choice {
                    Choice::All => Dim::Rows(1, tile as u32),
                    Choice::Experts { used, .. } => Dim::Rows(used as u32, 1),
                };
                let grid = [Dim::Fixed(n.div_ceil(g.per_group) as u32), rows, Dim::Fixed(1)];
                calls.push(call(shader.clone(), slots, words, grid));
            }
            calls
        };
        if choice == Choice::All {
            for tile in tiles {
                variants.push(Variant { most: tile, calls: gemv_calls(self, tile, Held::CodesFew) });
            }
            if let (true, Some(variant)) = (strict, variants.last_mut()) {
                variant.most = usize::MAX;
            }
        } else {
            variants.push(Variant { most: FEW, calls: gemv_calls(self, 1, Held::CodesFew) });
        }
        if more && choice != Choice::All {
            variants.push(Variant { most: usize::MAX, calls: gemv_calls(self, 1, Held::CodesMany) });
        }
        if by_matrix {
            let mut choices: Vec<_> = coop.into_iter().map(|(most, tiles)| (most, Some(tiles))).collect();
            if choices.is_empty() {
                choices.push((usize::MAX, None));
            }
            let between = group.gate.map(|_| self.scratch(node.rows, group.ends[0].3 * 4));
            for (most, tiles) in choices {
                let calls = self.gemm_calls(&group, [Some(first), second], (input, k, between), form, tiles);
                variants.push(Variant { most, calls });
            }
        }
        let result = group.ends.last().map(|e| e.2);
        self.push_variants(last, result, variants);
        Ok(())
    }

    /// Where a product's result goes rounded, if products read it, or a norm that only products read.
    fn rounding(&mut self, value: Value, group: &Group, choice: Choice) -> Option<Rounding> {
        let [(_, _, _, width)] = group.ends[..] else { return None };
        if !self.options.fuse || !width.is_multiple_of(BLOCK) {
            return None;
        }
        let node = self.value(value);
        let most = self.few_rows(node.rows);
        if let Choice::Experts { used, .. } = choice {
            let fits = |b: &mut Self, user: &Option<usize>| {
                let Some(user) = user.map(|user| &b.graph.nodes[user]) else { return false };
                matches!(user.op, Op::ExpertMatmul { .. })
                    && user.inputs[0] == value
                    && user.inputs[1] != value
                    && b.graph.weight(user.weights[0]).data.shape().row_len() == width
                    && b.by_codes(user.weights[0])
            };
            let most = self.most_rows(node.rows).min(FEW);
            let all = self.users(value).iter().all(|user| fits(self, user));
            return all.then(|| self.round_into((value, used, Held::CodesFew), most * used, width));
        }
        if self.readers(value) == [true, false] {
            return Some(self.round_into((value, 1, Held::CodesFew), most, width));
        }
        let users = self.users(value);
        let mut norms = users.into_iter().flatten().filter(|&user| {
            matches!(self.graph.nodes[user].op, Op::RmsNorm { .. })
                && self.graph.nodes[user].rows == node.rows
        });
        let (norm, None) = (norms.next()?, norms.next()) else { return None };
        let Op::RmsNorm { eps } = self.graph.nodes[norm].op else { return None };
        let (by, norm) = (self.graph.nodes[norm].weights[0], Value(norm as u32));
        let whole = self.graph.weight(by).data.shape().elements() == width;
        // Strict products of experts have kernels of their own for many rows.
        let plain = |user: &Option<usize>| user.is_some_and(|u| matches!(self.graph.nodes[u].op, Op::Matmul));
        let plain = !self.options.strict || self.users(norm).iter().all(plain);
        if !whole || !plain || self.readers(norm) != [true, false] {
            return None;
        }
        let mut round = self.round_into((norm, 1, Held::CodesFew), most, width);
        let squares = self.add_slot(Content::Value, most * halves(width) * 4);
        round.norm = Some([self.vector(by), squares]);
        self.scaled_late.insert(norm, (squares, eps));
        Some(round)
    }

    fn round_into(&mut self, key: (Value, usize, Held), rows: usize, width: usize) -> Rounding {
        let held = [16, 8].map(|bytes| self.add_slot(Content::Value, rows * halves(width) * bytes));
        self.held.insert(key, held);
        Rounding { held, norm: None }
    }

    /// Products of many rows: tile by tile, a gate in two calls with room `between` them.
    fn gemm_calls(
        &self,
        group: &Group,
        matrices: [Option<usize>; 2],
        (input, k, between): (Value, usize, Option<Slot>),
        form: &Form,
        tiles: Option<Tiles>,
    ) -> Vec<Call> {
        let mut jobs: Vec<(usize, Vec<End>)> = vec![];
        match (group.gate, matrices) {
            (Some((_, f)), [Some(first), Some(second)]) => {
                let (links, operands, y, width) = &group.ends[0];
                let gate = between.expect("a gate has room between its products");
                jobs.push((first, vec![(vec![], vec![], gate, *width)]));
                let links = [Link::GatedBy(f)].into_iter().chain(links.iter().cloned()).collect();
                let operands = [gate].into_iter().chain(operands.iter().copied()).collect();
                jobs.push((second, vec![(links, operands, *y, *width)]));
            }
            (_, [Some(first), _]) => jobs.push((first, group.ends.clone())),
            _ => unreachable!("a product has a matrix"),
        }
        let mut calls = vec![];
        for (index, ends) in jobs {
            let links: Vec<Vec<Link>> = ends.iter().map(|e| e.0.clone()).collect();
            let (shader, size) = match &tiles {
                Some(tiles) => (gemm::cooperative(form, &links, tiles), tiles.size()),
                None => (gemm::registers(form, &links), [gemm::REGISTER_TILE; 2]),
            };
            let matrix = &self.tape.matrices[index];
            for (part, range) in matrix.parts.iter().enumerate() {
                let mut slots = match &tiles {
                    Some(_) => self.held[&(input, 1, Held::Halves)].to_vec(),
                    None => vec![self.slot(input)],
                };
                slots.extend(&matrix.planes[part]);
                let mut words = ints([range.len(), range.start, halves(k), k]);
                words.push(Word::Factor(index, part));
                for (_, operands, y, width) in &ends {
                    slots.push(*y);
                    slots.extend(operands);
                    words.push(Word::Int(*width as u32));
                }
                let x = range.len().div_ceil(size[1]) as u32;
                calls.push(call(
                    shader.clone(),
                    slots,
                    words,
                    [Dim::Fixed(x), Dim::Rows(1, size[0] as u32), Dim::Fixed(1)],
                ));
            }
        }
        calls
    }

    /// Makes `input`, or its `parts` parts of `k` numbers, the input of products in these forms, unless it is already.
    fn hold(&mut self, value: Value, input: Value, parts: usize, k: usize, forms: &[Held]) {
        let rows = self.value(input).rows;
        let x = self.slot(input);
        let row_halves = halves(k);
        let (mut few, mut many) = (vec![], vec![]);
        for &form in forms {
            let key = (input, parts, form);
            if self.held.contains_key(&key) {
                continue;
            }
            let most = if form == Held::CodesFew { self.few_rows(rows) } else { self.most_rows(rows) };
            let slot =
                |b: &mut Self, bytes: usize| b.add_slot(Content::Value, most.saturating_mul(parts * bytes));
            let per_part = Dim::Rows(parts as u32, 1);
            let words = ints([row_halves, k]);
            if form == Held::Halves {
                let slots = [slot(self, row_halves * 32), slot(self, 4)];
                let grid = [Dim::Fixed(1), per_part, Dim::Fixed(1)];
                many.push(call(gemm::to_half(), vec![x, slots[0], slots[1]], words, grid));
                self.held.insert(key, slots);
                continue;
            }
            let slots = [slot(self, row_halves * 16), slot(self, row_halves * 8)];
            let quantize = quantize_call(x, slots, k, parts);
            match form {
                Held::CodesFew => few.push(quantize),
                _ => many.push(quantize),
            }
            self.held.insert(key, slots);
        }
        if few.is_empty() && many.is_empty() {
            return;
        }
        if self.options.strict {
            many.extend(few.iter().cloned());
        }
        let variants = vec![Variant { most: FEW, calls: few }, Variant { most: usize::MAX, calls: many }];
        debug_assert_eq!(self.value(value).rows, rows);
        self.push_variants(value, None, variants);
    }
}

/// Rounds `x`, or its `parts` parts of `k` numbers.
fn quantize_call(x: Slot, codes: [Slot; 2], k: usize, parts: usize) -> Call {
    let row_halves = halves(k);
    let grid = [Dim::Fixed(row_halves.div_ceil(64) as u32), Dim::Rows(parts as u32, 1), Dim::Fixed(1)];
    call(quantize::quantize(), vec![x, codes[0], codes[1]], ints([row_halves, k]), grid)
}

/// The rows of a value's kind in a step.
pub fn count(rows: Rows, step: [usize; 2]) -> usize {
    match rows {
        Rows::Tokens => step[0],
        Rows::Wanted => step[1],
    }
}
