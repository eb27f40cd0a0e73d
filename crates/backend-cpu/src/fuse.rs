//! Graph into program: which nodes become one task, and which values share a buffer.
//!
//! Fused are: products of one input (q, k, v; gate, up) into one task; the element-wise ops that follow a product,
//! each chunk of columns treated while it is in the cache; the rounding of a norm's result into the norm; rotation of
//! queries and keys and the write of the bank into attention. No fusion changes a result: every number goes through
//! the same operations in the same order.
//!
//! Rounding to eight bits costs most where keys and values are made: what is kept in the bank is read by every later
//! token. So those products take [`Form::Pairs`].

use crate::{
    attention,
    kernels::{Forms, Isa, Kernel},
    pointwise::Pointwise,
    program::{Action, Buf, BufInfo, ByForm, Form, Matrix, Operand, Placed, Product, Program, Task, Turn},
};
use nibble_backend::Activations;
use nibble_graph::{Graph, Label, Node, Op, Rope, Value, WeightId};
use std::{collections::HashMap, sync::Arc};

/// How to compile.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The instruction set.
    pub isa: Isa,
    /// The inputs of products.
    pub activations: Activations,
    /// Whether nodes may become one task.
    pub fuse: bool,
    /// Whether tasks list the buffers to be checked after them.
    pub check: bool,
}

/// Compiles a graph whose ops are all known here.
pub fn program(graph: &Graph, options: Options) -> Program {
    let mut b = Builder::new(graph, options);
    for i in 0..graph.nodes.len() {
        if !b.done[i] {
            b.node(Value(i as u32));
        }
    }
    b.program.outputs = graph.outputs.iter().map(|&v| b.buf(v)).collect();
    b.lifetimes();
    b.program
}

struct Builder<'a> {
    graph: &'a Graph,
    options: Options,
    program: Program,
    /// The buffer of each value that was made.
    bufs: Vec<Option<Buf>>,
    /// Nodes that are part of a task.
    done: Vec<bool>,
    /// Nodes that read each value, and outputs.
    users: Vec<Vec<Option<usize>>>,
    /// Products that make keys and values.
    kept: Vec<bool>,
    matrices: HashMap<WeightId, usize>,
    vectors: HashMap<(WeightId, bool), usize>,
    /// What the inputs of products hold, by form: a value and its number of parts.
    held: ByForm<Option<(Value, usize)>>,
    /// Values that the task in hand makes, with their buffers.
    made: Vec<(Value, Buf)>,
}

impl<'a> Builder<'a> {
    fn new(graph: &'a Graph, options: Options) -> Self {
        let count = graph.nodes.len();
        Self {
            graph,
            options,
            program: Program::default(),
            bufs: vec![None; count],
            done: vec![false; count],
            users: graph.users(),
            kept: kept(graph),
            matrices: HashMap::new(),
            vectors: HashMap::new(),
            held: ByForm::default(),
            made: Vec::new(),
        }
    }

    fn value(&self, value: Value) -> &'a Node {
        &self.graph.nodes[value.0 as usize]
    }

    fn buf(&self, value: Value) -> Buf {
        self.bufs[value.0 as usize].expect("nodes come after their inputs")
    }

    /// The one node that reads `value`, if only one does and fusing is on.
    fn only_user(&self, value: Value) -> Option<usize> {
        match self.users[value.0 as usize][..] {
            [Some(user)] if self.options.fuse => Some(user),
            _ => None,
        }
    }

    /// A buffer of its own for `value`.
    fn fresh(&mut self, value: Value) -> Buf {
        let node = self.value(value);
        self.program.bufs.push(BufInfo {
            rows: node.rows,
            width: node.width,
            first: 0,
            last: 0,
            pairs: false,
        });
        let buf = Buf(self.program.bufs.len() - 1);
        self.bind(value, buf);
        buf
    }

    fn bind(&mut self, value: Value, buf: Buf) {
        self.bufs[value.0 as usize] = Some(buf);
        self.done[value.0 as usize] = true;
        self.made.push((value, buf));
    }

    /// The buffer of `from` for the result of `value`, its only user; otherwise a new one.
    fn take_over(&mut self, from: Value, value: Value) -> Buf {
        let same = self.value(from).width == self.value(value).width;
        if same && self.only_user(from) == Some(value.0 as usize) && self.bufs[from.0 as usize].is_some() {
            let buf = self.buf(from);
            self.bind(value, buf);
            return buf;
        }
        self.fresh(value)
    }

    /// Adds the task that makes the values bound since the last one.
    fn push(&mut self, task: Task) {
        let made = std::mem::take(&mut self.made);
        let values: Vec<_> = made.iter().map(|&(value, _)| value).collect();
        let mut checked: Vec<(Buf, Vec<Value>)> = Vec::new();
        for (value, buf) in made {
            // In the order of the last write, so that a gate is not blamed for what it was multiplied by.
            let found = checked.iter().position(|(other, _)| *other == buf);
            let mut values = found.map_or(Vec::new(), |at| checked.remove(at).1);
            values.push(value);
            checked.push((buf, values));
        }
        checked.retain(|_| self.options.check);
        let label = Arc::new(self.graph.label(&values));
        let checked = checked.into_iter().map(|(buf, values)| (buf, self.graph.label(&values))).collect();
        self.program.tasks.push(Placed { task, label, checked });
    }

    fn matrix(&mut self, id: WeightId) -> usize {
        if let Some(&index) = self.matrices.get(&id) {
            return index;
        }
        let data = self.graph.weight(id).data.clone();
        let kernel =
            Kernel::pick(self.options.isa, data.codec(), self.options.activations == Activations::F32);
        self.program.matrices.push(Matrix { data, kernel });
        self.matrices.insert(id, self.program.matrices.len() - 1);
        self.program.matrices.len() - 1
    }

    /// A weight as numbers; `turned`: `[D, kernel]` as `[kernel, D]`.
    fn vector(&mut self, id: WeightId, turned: bool) -> usize {
        if let Some(&index) = self.vectors.get(&(id, turned)) {
            return index;
        }
        let data = &self.graph.weight(id).data;
        let numbers = data.decode();
        let numbers = if turned {
            let columns = data.shape().row_len();
            (0..columns).flat_map(|c| numbers.iter().skip(c).step_by(columns).copied()).collect()
        } else {
            numbers
        };
        self.program.vectors.push(numbers);
        self.vectors.insert((id, turned), self.program.vectors.len() - 1);
        self.program.vectors.len() - 1
    }

    fn table(&mut self, rope: &Rope) -> usize {
        let same = |t: &Rope| {
            t.dims == rope.dims && t.frequencies == rope.frequencies && t.magnitude == rope.magnitude
        };
        if let Some(index) = self.program.tables.iter().position(same) {
            return index;
        }
        self.program.tables.push(rope.clone());
        self.program.tables.len() - 1
    }

    fn node(&mut self, value: Value) {
        let node = self.value(value);
        let input = |i: usize| node.inputs[i];
        match &node.op {
            Op::Tokens => self.done[value.0 as usize] = true,
            Op::Given { .. } => {
                let buf = self.fresh(value);
                self.made.pop();
                self.program.given.push(buf);
            }
            Op::Embed => {
                let (matrix, y) = (self.matrix(node.weights[0]), self.fresh(value));
                self.push(Task::Embed { matrix, y });
            }
            Op::Matmul => self.products(value),
            Op::ExpertMatmul { .. } => self.products(value),
            Op::Bias
            | Op::Gain
            | Op::Add
            | Op::Mul
            | Op::Scale(_)
            | Op::Activate(_)
            | Op::Gated(_)
            | Op::SoftCap(_)
            | Op::ExpertBias { .. } => self.pointwise(value),
            Op::RmsNorm { eps } => self.rms_norm(value, *eps),
            Op::L2Norm { group, eps } => {
                let x = self.buf(input(0));
                let y = self.take_over(input(0), value);
                self.push(Task::L2Norm { x, y, group: *group, eps: *eps });
            }
            Op::Slice { group, start, len } => {
                let (x, y) = (self.buf(input(0)), self.fresh(value));
                let task = Task::Slice { x, y, group: *group, start: *start, len: *len };
                self.push(task);
            }
            Op::Columns => {
                let (x, vector) = (self.buf(input(0)), self.vector(node.weights[0], false));
                let y = self.fresh(value);
                self.push(Task::Columns { x, y, vector });
            }
            Op::Hadamard { block } => {
                let x = self.buf(input(0));
                let y = self.take_over(input(0), value);
                self.push(Task::Hadamard { x, y, block: *block });
            }
            Op::Rope(rope) => self.rope(value, rope),
            Op::Attention(a) => self.attention(value, a),
            Op::ShortConv { state } => {
                let (x, vector) = (self.buf(input(0)), self.vector(node.weights[0], true));
                let y = self.fresh(value);
                self.push(Task::ShortConv { x, y, vector, state: *state });
            }
            Op::GatedDelta(op) => {
                let [q, k, v, decay, beta] = [0, 1, 2, 3, 4].map(|i| self.buf(input(i)));
                let y = self.fresh(value);
                self.push(Task::GatedDelta { q, k, v, decay, beta, y, op: *op });
            }
            Op::Route(op) => {
                let bias = node.weights.first().map(|&w| self.vector(w, false));
                let (logits, y) = (self.buf(input(0)), self.fresh(value));
                self.push(Task::Route { logits, y, bias, op: *op });
            }
            Op::Combine { .. } => {
                let (x, route) = (self.buf(input(0)), self.buf(input(1)));
                let y = self.fresh(value);
                self.push(Task::Combine { x, route, y });
            }
            Op::Wanted => {
                let (x, y) = (self.buf(input(0)), self.fresh(value));
                self.push(Task::Wanted { x, y });
            }
        }
    }

    /// The forms in which products read `value` whole.
    fn forms_read(&mut self, value: Value) -> ByForm<bool> {
        let mut forms = ByForm::default();
        for user in self.users[value.0 as usize].clone().into_iter().flatten() {
            let node = &self.graph.nodes[user];
            let whole = match node.op {
                Op::Matmul => true,
                Op::ExpertMatmul { .. } => {
                    let k = self.graph.weight(node.weights[0]).data.shape().row_len();
                    node.inputs[0] == value && k == self.value(value).width
                }
                _ => false,
            };
            if whole {
                let matrix = self.matrix(node.weights[0]);
                forms[self.form(user, matrix) as usize] = true;
            }
        }
        forms
    }

    /// The form in which the product `node` reads its input.
    fn form(&self, node: usize, matrix: usize) -> Form {
        match self.program.matrices[matrix].kernel.forms() {
            Forms::FLOATS => Form::Floats,
            Forms::WIDE if self.options.activations == Activations::I16 => Form::WidePairs,
            // Twelve bits are enough for keys and values too.
            Forms::WIDE => Form::Wide,
            _ if self.kept[node] || self.options.activations == Activations::I16 => Form::Pairs,
            _ => Form::Codes,
        }
    }

    fn rms_norm(&mut self, value: Value, eps: f32) {
        let node = self.value(value);
        let (x, vector) = (self.buf(node.inputs[0]), self.vector(node.weights[0], false));
        let y = self.take_over(node.inputs[0], value);
        let fill = if self.options.fuse { self.forms_read(value) } else { ByForm::default() };
        for (held, _) in self.held.iter_mut().zip(fill).filter(|(_, fill)| *fill) {
            *held = Some((value, 1));
        }
        self.push(Task::RmsNorm { x, y, vector, eps, fill });
    }

    fn rope(&mut self, value: Value, rope: &Rope) {
        let from = self.value(value).inputs[0];
        let in_attention = self.only_user(value).is_some_and(|user| {
            let node = &self.graph.nodes[user];
            matches!(node.op, Op::Attention(_)) && node.inputs[2] != value
        });
        if in_attention && self.only_user(from).is_some() {
            // Attention turns it in place, and counts as its maker.
            let buf = self.buf(from);
            self.bind(value, buf);
            self.made.pop();
            return;
        }
        let (x, table) = (self.buf(from), self.table(rope));
        let y = self.take_over(from, value);
        self.push(Task::Rope { x, y, turn: Turn { rope: rope.clone(), table } });
    }

    fn attention(&mut self, value: Value, a: &nibble_graph::Attention) {
        let inputs = self.value(value).inputs.clone();
        let sinks = self.value(value).weights.first().map(|&w| self.vector(w, false));
        let [q, k, v] = [0, 1, 2].map(|i| self.buf(inputs[i]));
        let mut turn = |input: Value| {
            let Op::Rope(rope) = &self.value(input).op else { return None };
            // A rope with a task of its own has turned the value already.
            let in_place =
                self.only_user(input).is_some() && self.only_user(self.value(input).inputs[0]).is_some();
            in_place.then(|| Turn { rope: rope.clone(), table: self.table(rope) })
        };
        let (turn_q, turn_k) = (turn(inputs[0]), turn(inputs[1]));
        for (turn, input, buf) in [(&turn_q, inputs[0], q), (&turn_k, inputs[1], k)] {
            if turn.is_some() {
                self.made.push((input, buf));
            }
        }
        let y = self.fresh(value);
        let shape = attention::Shape { op: a.clone(), keys: self.graph.kv_layers[a.cache] };
        self.push(Task::Attention { q, k, v, y, shape, sinks, turn_q, turn_k });
    }

    /// An element-wise node as an op, with its second operand.
    fn as_pointwise(&mut self, node: &Node, first: Value) -> Option<(Pointwise, Option<Value>, Operand)> {
        let other = |i: usize| node.inputs.get(i).copied();
        let either = || if node.inputs[0] == first { other(1) } else { other(0) };
        Some(match node.op {
            Op::Bias => (Pointwise::Add, None, Operand::Vector(self.vector(node.weights[0], false))),
            Op::ExpertBias { used } if node.inputs[0] == first => {
                let (vector, route) = (self.vector(node.weights[0], false), self.buf(node.inputs[1]));
                (Pointwise::Add, None, Operand::OfExpert { vector, route, width: node.width / used })
            }
            Op::Gain => {
                let vector = self.vector(node.weights[0], false);
                match self.program.vectors[vector][..] {
                    [factor] if node.width != 1 => (Pointwise::Scale(factor), None, Operand::None),
                    _ => (Pointwise::Mul, None, Operand::Vector(vector)),
                }
            }
            Op::Add => (Pointwise::Add, either(), Operand::None),
            Op::Mul => (Pointwise::Mul, either(), Operand::None),
            Op::Gated(a) if node.inputs[0] == first => (Pointwise::Gated(a), other(1), Operand::None),
            Op::Scale(factor) => (Pointwise::Scale(factor), None, Operand::None),
            Op::Activate(a) => (Pointwise::Activate(a), None, Operand::None),
            Op::SoftCap(cap) => (Pointwise::SoftCap(cap), None, Operand::None),
            _ => return None,
        })
    }

    /// Follows the element-wise nodes that alone read `value`, as long as their other operands are in buffers below
    /// `made`: those made before the task in hand. `plain` leaves out second operands. Returns the last value; its
    /// buffer is that of `value`.
    fn follow(&mut self, mut value: Value, made: usize, plain: bool, actions: &mut Vec<Action>) -> Value {
        let to = self.buf(value);
        while let Some(user) = self.only_user(value) {
            let node = &self.graph.nodes[user];
            let Some((op, other, with)) = self.as_pointwise(node, value) else { break };
            let with = match other {
                Some(other) => match self.bufs[other.0 as usize] {
                    Some(buf) if buf.0 < made && buf != to => Operand::Buf(buf),
                    _ => break,
                },
                None => with,
            };
            if plain && !matches!(with, Operand::None | Operand::OfExpert { .. }) {
                break;
            }
            actions.push(Action::Apply { op, to, with });
            value = Value(user as u32);
            self.bind(value, to);
        }
        value
    }

    fn pointwise(&mut self, value: Value) {
        let node = self.value(value);
        let mut first = node.inputs[0];
        if matches!(node.op, Op::Add | Op::Mul) && self.only_user(first).is_none() {
            // The other operand's buffer may be free.
            first = if self.only_user(node.inputs[1]).is_some() { node.inputs[1] } else { first };
        }
        let (op, other, with) = self.as_pointwise(node, first).expect("an element-wise node");
        let with = other.map_or(with, |other| Operand::Buf(self.buf(other)));
        let x = self.buf(first);
        let y = self.take_over(first, value);
        let mut actions = vec![Action::Apply { op, to: y, with }];
        let made = self.program.bufs.len();
        self.follow(value, made, false, &mut actions);
        self.push(Task::Pointwise { x, y, actions });
    }

    /// All products of the input of `value`, with what follows them.
    fn products(&mut self, value: Value) {
        let node = self.value(value);
        let experts = matches!(node.op, Op::ExpertMatmul { .. });
        let same = |i: &usize| {
            let other = &self.graph.nodes[*i];
            !self.done[*i]
                && std::mem::discriminant(&other.op) == std::mem::discriminant(&node.op)
                && other.inputs == node.inputs
        };
        let first = value.0 as usize;
        let end = if self.options.fuse { self.graph.nodes.len() } else { first + 1 };
        let members: Vec<Value> = (first..end).filter(same).map(|i| Value(i as u32)).collect();
        let mut products = Vec::new();
        let mut forms = ByForm::default();
        let made = self.program.bufs.len();
        for &member in &members {
            let weight = self.graph.nodes[member.0 as usize].weights[0];
            let matrix = self.matrix(weight);
            let form = self.form(member.0 as usize, matrix);
            forms[form as usize] = true;
            let to = self.fresh(member);
            self.program.bufs[to.0].pairs = form.is_pairs();
            let dims = self.graph.weight(weight).data.shape();
            let columns = dims.dims()[dims.dims().len() - 2];
            products.push(Product { columns, actions: vec![Action::Multiply { matrix, form, to }] });
        }
        self.epilogues(&members, made, &mut products, experts);
        let shape = self.graph.weight(node.weights[0]).data.shape();
        let parts = if experts { self.value(node.inputs[0]).width / shape.row_len() } else { 1 };
        self.fill(value, node.inputs[0], parts, forms);
        let task = match node.op {
            Op::ExpertMatmul { used } => Task::ExpertMatmul {
                route: self.buf(node.inputs[1]),
                used,
                experts: shape.dims()[0],
                own_inputs: parts > 1,
                products,
            },
            _ => Task::Matmul { rows: node.rows, products },
        };
        self.push(task);
    }

    /// Appends element-wise ops to products; a pair that a gate joins becomes one product.
    fn epilogues(&mut self, members: &[Value], made: usize, products: &mut Vec<Product>, plain: bool) {
        let mut ends: Vec<Value> = Vec::new();
        for (&member, product) in members.iter().zip(&mut *products) {
            ends.push(self.follow(member, made, plain, &mut product.actions));
        }
        let mut gate = 0;
        while gate < products.len() {
            if let Some((up, node)) = self.gate_of(&ends, products, gate) {
                let (to, with) = (self.buf(ends[gate]), Operand::Buf(self.buf(ends[up])));
                let Op::Gated(a) = self.value(node).op else { unreachable!("gate_of finds gates") };
                let joined = std::mem::take(&mut products[up].actions);
                products[gate].actions.extend(joined);
                products[gate].actions.push(Action::Apply { op: Pointwise::Gated(a), to, with });
                self.bind(node, to);
                ends[gate] = self.follow(node, made, plain, &mut products[gate].actions);
                products.remove(up);
                ends.remove(up);
                gate = 0;
            } else {
                gate += 1;
            }
        }
    }

    /// The product that is the second operand of the gate that alone reads product `gate`, and the gate.
    fn gate_of(&self, ends: &[Value], products: &[Product], gate: usize) -> Option<(usize, Value)> {
        let user = self.only_user(ends[gate])?;
        let node = &self.graph.nodes[user];
        let is_gate = matches!(node.op, Op::Gated(_)) && node.inputs[0] == ends[gate];
        let up = ends.iter().position(|e| is_gate && *e == node.inputs[1])?;
        let fits = up != gate && products[up].columns == products[gate].columns;
        (fits && self.only_user(ends[up]).is_some()).then_some((up, Value(user as u32)))
    }

    /// Makes `input` the input of products in some forms, unless it is already.
    fn fill(&mut self, value: Value, input: Value, parts: usize, forms: ByForm<bool>) {
        for form in Form::ALL {
            let held = &mut self.held[form as usize];
            if forms[form as usize] && *held != Some((input, parts)) {
                *held = Some((input, parts));
                let (x, layer) = (self.buf(input), self.value(value).layer);
                let what = format!("round ({})", self.graph.name(input));
                let label = Arc::new(Label { layer, what });
                // Not `push`: the products that it belongs to are bound already, and come next.
                let task = Task::Fill { x, parts, form };
                self.program.tasks.push(Placed { task, label, checked: Vec::new() });
            }
        }
    }

    fn lifetimes(&mut self) {
        let program = &mut self.program;
        for buf in &mut program.bufs {
            (buf.first, buf.last) = (usize::MAX, 0);
        }
        for (i, placed) in program.tasks.iter().enumerate() {
            for buf in placed.task.bufs() {
                let info = &mut program.bufs[buf.0];
                (info.first, info.last) = (info.first.min(i), info.last.max(i));
            }
        }
        for output in &program.outputs {
            program.bufs[output.0].last = usize::MAX;
        }
        // What comes from outside is there before the first task.
        for given in &program.given {
            program.bufs[given.0].first = 0;
        }
        // Wanted rows read before any task: only a graph whose output is a weightless constant has none.
        program.bufs.iter_mut().filter(|b| b.first == usize::MAX).for_each(|b| b.first = 0);
    }
}

/// Which nodes are products whose results become keys or values, changed at most number by number or head by head.
fn kept(graph: &Graph) -> Vec<bool> {
    let mut kept = vec![false; graph.nodes.len()];
    for node in graph.nodes.iter().filter(|n| matches!(n.op, Op::Attention(_))) {
        for &input in &node.inputs[1..3] {
            let mut at = input.0 as usize;
            while let ([from], false) =
                (&graph.nodes[at].inputs[..], matches!(graph.nodes[at].op, Op::Matmul))
            {
                at = from.0 as usize;
            }
            kept[at] |= matches!(graph.nodes[at].op, Op::Matmul);
        }
    }
    kept
}
