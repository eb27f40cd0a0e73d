//! One step: the tasks of a program, one after another.

use crate::{
    attention::{self, Tile},
    cut::Cut,
    experts, gated_delta, hadamard,
    kernels::{Activations, Input, Isa, Output, Scratch},
    kv::{self, Order},
    norm,
    parts::Parts,
    per_thread::PerThread,
    pointwise::{self, Pointwise},
    pool::Team,
    program::{Action, Buf, ByForm, Form, Operand, Product, Program, Task, Turn},
    rope, route,
    short_conv::{self, ShortConv},
    sizes::Sizes,
    strips::Strips,
    trace::Trace,
};
use nibble_backend::{Error, PAGE_LEN, Step};
use nibble_graph::GatedDelta;
use std::ops::Range;

/// Numbers that are not worth a second thread.
const ALONE: usize = 16 << 10;

/// Chunks for each thread, so that a slow one takes fewer.
const CHUNKS: usize = 8;

/// A step in the making.
///
/// Tasks run one after another; within one, chunks write different rows or columns. Two buffers overlap only if no task
/// uses one while the other is needed ([`crate::layout::place`]), so what a chunk reads is not written meanwhile,
/// except where `x` and `y` of a task are one buffer: then only [`Exec::in_place`] touches it.
pub struct Exec<'a> {
    pub isa: Isa,
    pub step: &'a Step<'a>,
    pub program: &'a Program,
    pub strips: &'a Strips,
    pub sizes: &'a Sizes,
    pub rows: [usize; 2],
    pub team: Team<'a>,
    pub arena: Parts<'a, f32>,
    pub bank: Parts<'a, u8>,
    pub states: Parts<'a, f32>,
    pub inputs: &'a mut ByForm<Activations>,
    pub scratch: &'a PerThread<Scratch>,
    pub tiles: &'a mut [Tile],
    pub assignment: &'a mut [u32],
}

/// What the chunks of a region share.
#[derive(Clone, Copy)]
struct View<'a> {
    isa: Isa,
    step: &'a Step<'a>,
    program: &'a Program,
    strips: &'a Strips,
    sizes: &'a Sizes,
    rows: [usize; 2],
    arena: Parts<'a, f32>,
}

impl<'a> View<'a> {
    fn width(&self, buf: Buf) -> usize {
        self.program.bufs[buf.0].width
    }

    fn rows(&self, buf: Buf) -> usize {
        self.rows[self.program.bufs[buf.0].rows as usize]
    }

    fn range(&self, buf: Buf, rows: Range<usize>) -> Range<usize> {
        let (start, width) = (self.sizes.starts[buf.0], self.width(buf));
        start + rows.start * width..start + rows.end * width
    }

    /// Rows of a buffer, to read.
    fn read(&self, buf: Buf, rows: Range<usize>) -> &'a [f32] {
        // SAFETY: no chunk writes what another reads: see [`Exec`].
        unsafe { self.arena.part(self.range(buf, rows)) }
    }

    /// All rows of the step, to read.
    fn all(&self, buf: Buf) -> &'a [f32] {
        self.read(buf, 0..self.rows(buf))
    }

    /// Rows of a buffer, to write.
    ///
    /// # Safety
    /// The rows belong to this chunk.
    unsafe fn write(&self, buf: Buf, rows: Range<usize>) -> &'a mut [f32] {
        // SAFETY: passed on.
        unsafe { self.arena.part(self.range(buf, rows)) }
    }

    /// Rows of `y` that hold those of `x`, to change.
    ///
    /// # Safety
    /// The rows belong to this chunk.
    unsafe fn in_place(&self, x: Buf, y: Buf, rows: Range<usize>) -> &'a mut [f32] {
        // SAFETY: passed on.
        let to = unsafe { self.write(y, rows.clone()) };
        if x != y {
            to.copy_from_slice(self.read(x, rows));
        }
        to
    }

    fn vector(&self, index: usize) -> &'a [f32] {
        &self.program.vectors[index]
    }

    /// The angles of a row.
    fn angles(&self, turn: &Turn, row: usize) -> &'a [f32] {
        let start = self.sizes.tables[turn.table] + row * turn.rope.dims;
        // SAFETY: tables are written before the first task.
        unsafe { self.arena.part(start..start + turn.rope.dims) }
    }

    /// The scratch of a thread.
    ///
    /// # Safety
    /// `thread` is the number of the running chunk, which asks once.
    unsafe fn spare(&self, thread: usize) -> &'a mut [f32] {
        let start = self.sizes.scratch + thread * self.sizes.scratch_len;
        // SAFETY: passed on; the scratch of each thread is its own.
        unsafe { self.arena.part(start..start + self.sizes.scratch_len) }
    }

    /// A buffer as the output of products: `rows` rows of `columns` numbers.
    ///
    /// # Safety
    /// What is written belongs to this chunk.
    unsafe fn output(&self, buf: Buf, rows: usize, columns: usize) -> Output<'a> {
        let start = self.sizes.starts[buf.0];
        let len = rows * columns;
        assert!(start + len <= self.arena.len());
        // SAFETY: the arena outlives the step; the caller promises the rest.
        unsafe { Output::shared(self.arena.start().add(start), len, columns) }
    }

    /// Adds to some columns of row `row` of `to`, rows being `width` numbers, those of the row `rows` behind it.
    ///
    /// # Safety
    /// They belong to this chunk.
    unsafe fn add_rest(&self, to: Buf, width: usize, row: usize, rows: usize, columns: &Range<usize>) {
        let columns_of = |row: usize| {
            let start = self.sizes.starts[to.0] + row * width;
            // SAFETY: passed on; the two rows lie apart.
            unsafe { self.arena.part(start + columns.start..start + columns.end) }
        };
        pointwise::apply(self.isa, Pointwise::Add, columns_of(row), columns_of(rows + row));
    }

    /// Where the state of a layer begins for a sequence of the step.
    fn state(&self, sequence: usize, layer: usize) -> usize {
        self.step.sequences[sequence].state as usize * self.sizes.slot + self.sizes.states[layer]
    }

    /// The operand of columns `columns` of row `row`, or of the first of them: up to the end of a slot.
    fn operand(&self, with: Operand, row: usize, columns: &Range<usize>) -> &'a [f32] {
        match with {
            Operand::None => &[],
            Operand::Vector(index) => &self.vector(index)[columns.clone()],
            Operand::Buf(buf) => &self.read(buf, row..row + 1)[columns.clone()],
            Operand::OfExpert { vector, route, width } => {
                let (slot, first) = (columns.start / width, columns.start % width);
                let route = self.read(route, row..row + 1);
                let expert = route[route.len() / 2 + slot] as usize;
                let end = width.min(first + columns.len());
                &self.vector(vector)[expert * width..][first..end]
            }
        }
    }

    /// Applies an element-wise action to some columns of some rows.
    ///
    /// # Safety
    /// They belong to this chunk.
    unsafe fn apply(&self, op: Pointwise, to: Buf, with: Operand, row: usize, columns: &Range<usize>) {
        let start = self.range(to, row..row + 1).start;
        let mut columns = columns.clone();
        while !columns.is_empty() {
            let x = self.operand(with, row, &columns);
            let end = if x.is_empty() { columns.end } else { columns.start + x.len() };
            // SAFETY: passed on.
            let y = unsafe { self.arena.part(start + columns.start..start + end) };
            pointwise::apply(self.isa, op, y, x);
            columns.start = end;
        }
    }
}

impl<'a> Exec<'a> {
    /// Runs all tasks, and looks at the results that are to be checked.
    pub fn run(mut self) -> Result<(), Error> {
        let program = self.program;
        let trace = self.team.trace();
        let start = trace.map(Trace::now);
        self.tables();
        if let (Some(trace), Some(start)) = (trace, start) {
            trace.done(&trace.angles, start);
        }
        for placed in &program.tasks {
            let start = trace.map(Trace::now);
            self.task(&placed.task);
            if let (Some(trace), Some(start)) = (trace, start) {
                trace.done(&placed.label, start);
            }
            let view = self.view();
            for (buf, label) in &placed.checked {
                Error::not_finite(label, view.all(*buf), view.width(*buf))?;
            }
        }
        Ok(())
    }

    fn view(&self) -> View<'a> {
        View {
            isa: self.isa,
            step: self.step,
            program: self.program,
            strips: self.strips,
            sizes: self.sizes,
            rows: self.rows,
            arena: self.arena,
        }
    }

    /// The angles of every rope for every row.
    fn tables(&mut self) {
        let view = self.view();
        for (index, rope) in self.program.tables.iter().enumerate() {
            // A sine costs as much as some dozen numbers.
            by_rows(&mut self.team, self.rows[0], 32 * rope.dims, |rows, _| {
                for row in rows {
                    let start = view.sizes.tables[index] + row * rope.dims;
                    // SAFETY: the row's angles belong to this chunk.
                    let table = unsafe { view.arena.part(start..start + rope.dims) };
                    let sequence = &view.step.sequences[view.step.sequence[row] as usize];
                    rope::angles(rope, view.step.positions[row], sequence.prompt_len, table);
                }
            });
        }
    }

    fn task(&mut self, task: &Task) {
        let view = self.view();
        match task {
            Task::Embed { matrix, y } => {
                let data = &self.program.matrices[*matrix].data;
                by_rows(&mut self.team, self.rows[0], 4 * view.width(*y), |rows, _| {
                    for row in rows {
                        // SAFETY: the row belongs to this chunk.
                        let y = unsafe { view.write(*y, row..row + 1) };
                        data.decode_row(view.step.tokens[row] as usize, y);
                    }
                });
            }
            Task::RmsNorm { x, y, vector, eps, fill } => self.rms_norm(*x, *y, *vector, *eps, *fill),
            Task::L2Norm { x, y, group, eps } => {
                by_rows(&mut self.team, view.rows(*y), view.width(*y), |rows, _| {
                    // SAFETY: the rows belong to this chunk.
                    norm::l2_norm(view.isa, unsafe { view.in_place(*x, *y, rows) }, *group, *eps);
                });
            }
            Task::Slice { x, y, group, start, len } => {
                by_rows(&mut self.team, view.rows(*y), view.width(*y), |rows, _| {
                    let x = view.read(*x, rows.clone()).chunks_exact(*group);
                    // SAFETY: the rows belong to this chunk.
                    let y = unsafe { view.write(*y, rows) }.chunks_exact_mut(*len);
                    y.zip(x).for_each(|(y, x)| y.copy_from_slice(&x[*start..start + len]));
                });
            }
            Task::Columns { x, y, vector } => {
                let columns = &self.program.vectors[*vector];
                by_rows(&mut self.team, view.rows(*y), view.width(*y), |rows, _| {
                    let x = view.read(*x, rows.clone()).chunks_exact(view.width(*x));
                    // SAFETY: the rows belong to this chunk.
                    let y = unsafe { view.write(*y, rows) }.chunks_exact_mut(columns.len());
                    for (x, y) in x.zip(y) {
                        let pick = |c: f32| if c < 0.0 { 0.0 } else { x[c as usize] };
                        y.iter_mut().zip(columns).for_each(|(y, &c)| *y = pick(c));
                    }
                });
            }
            Task::Hadamard { x, y, block } => {
                by_rows(&mut self.team, view.rows(*y), view.width(*y), |rows, _| {
                    // SAFETY: the rows belong to this chunk.
                    let y = unsafe { view.in_place(*x, *y, rows) };
                    y.chunks_exact_mut(*block).for_each(hadamard::rotate);
                });
            }
            Task::Rope { x, y, turn } => {
                by_rows(&mut self.team, view.rows(*y), view.width(*y), |rows, _| {
                    for row in rows {
                        // SAFETY: the row belongs to this chunk.
                        let y = unsafe { view.in_place(*x, *y, row..row + 1) };
                        rope::rope(&turn.rope, view.angles(turn, row), y);
                    }
                });
            }
            Task::Pointwise { x, y, actions } => self.pointwise(*x, *y, actions),
            Task::Fill { x, parts, form } => self.fill(*x, *parts, *form),
            Task::Matmul { rows, products } => self.matmul(self.rows[*rows as usize], products),
            Task::ExpertMatmul { route, used, experts, own_inputs, products } => {
                self.expert_matmul(*route, *used, *experts, *own_inputs, products);
            }
            Task::Attention { q, k, v, y, shape, sinks, turn_q, turn_k } => {
                self.keep_keys([*q, *k, *v], shape, [turn_q.as_ref(), turn_k.as_ref()]);
                self.attention(*q, *y, *sinks, shape);
            }
            Task::ShortConv { x, y, vector, state } => self.short_conv(*x, *y, *vector, *state),
            Task::GatedDelta { q, k, v, decay, beta, y, op } => {
                self.gated_delta([*q, *k, *v, *decay, *beta], *y, op);
            }
            Task::Route { logits, y, bias, op } => {
                let bias = bias.map(|b| view.vector(b));
                by_rows(&mut self.team, view.rows(*y), 16 * view.width(*logits), |rows, thread| {
                    // SAFETY: the scratch is this thread's.
                    let spare = unsafe { view.spare(thread) };
                    for row in rows {
                        // SAFETY: the row belongs to this chunk.
                        let y = unsafe { view.write(*y, row..row + 1) };
                        route::route(op, view.read(*logits, row..row + 1), bias, spare, y);
                    }
                });
            }
            Task::Combine { x, route, y } => {
                by_rows(&mut self.team, view.rows(*y), view.width(*x), |rows, _| {
                    for row in rows {
                        // SAFETY: the row belongs to this chunk.
                        let y = unsafe { view.write(*y, row..row + 1) };
                        experts::combine(view.read(*x, row..row + 1), view.read(*route, row..row + 1), y);
                    }
                });
            }
            Task::Wanted { x, y } => {
                for (i, &row) in self.step.wanted.iter().enumerate() {
                    // SAFETY: no other chunk is running.
                    let y = unsafe { view.write(*y, i..i + 1) };
                    y.copy_from_slice(view.read(*x, row as usize..row as usize + 1));
                }
            }
        }
    }

    fn rms_norm(&mut self, x: Buf, y: Buf, vector: usize, eps: f32, fill: ByForm<bool>) {
        let view = self.view();
        let (rows, width) = (view.rows(y), view.width(y));
        let filled = || Form::ALL.into_iter().filter(|&form| fill[form as usize]);
        filled().for_each(|form| self.inputs[form as usize].reshape(form.rows(rows), width));
        let inputs = &*self.inputs;
        by_rows(&mut self.team, rows, width, |rows, _| {
            for row in rows {
                // SAFETY: the row belongs to this chunk.
                let y = unsafe { view.in_place(x, y, row..row + 1) };
                norm::rms_norm(view.isa, y, view.vector(vector), eps);
                for form in filled() {
                    // SAFETY: the row belongs to this chunk.
                    unsafe { fill_row(&inputs[form as usize], form, view.isa, row, y) };
                }
            }
        });
    }

    fn fill(&mut self, x: Buf, parts: usize, form: Form) {
        let view = self.view();
        let (rows, width) = (view.rows(x), view.width(x));
        self.inputs[form as usize].reshape(form.rows(rows * parts), width / parts);
        let input = &self.inputs[form as usize];
        by_rows(&mut self.team, rows, width, |rows, _| {
            for row in rows {
                let x = view.read(x, row..row + 1);
                for (part, x) in x.chunks_exact(width / parts).enumerate() {
                    // SAFETY: the row, and with it its parts, belongs to this chunk.
                    unsafe { fill_row(input, form, view.isa, row * parts + part, x) };
                }
            }
        });
    }

    fn pointwise(&mut self, x: Buf, y: Buf, actions: &[Action]) {
        let view = self.view();
        let (rows, width) = (view.rows(y), view.width(y));
        // A wide row is cut, so that one row of logits is shared too.
        let pieces = (rows * width).div_ceil(ALONE).div_ceil(rows.max(1)).max(1);
        let piece = width.div_ceil(pieces).next_multiple_of(16);
        let pieces = width.div_ceil(piece);
        by_rows(&mut self.team, rows * pieces, piece, |chunks, _| {
            for chunk in chunks {
                let (row, start) = (chunk / pieces, chunk % pieces * piece);
                let columns = start..width.min(start + piece);
                let base = view.range(y, row..row + 1).start;
                if x != y {
                    // SAFETY: the columns of this row belong to this chunk.
                    let y = unsafe { view.arena.part(base + columns.start..base + columns.end) };
                    y.copy_from_slice(&view.read(x, row..row + 1)[columns.clone()]);
                }
                for action in actions {
                    let Action::Apply { op, to, with } = *action else { unreachable!("no products here") };
                    // SAFETY: as above.
                    unsafe { view.apply(op, to, with, row, &columns) };
                }
            }
        });
    }

    fn matmul(&mut self, rows: usize, products: &[Product]) {
        if rows == 0 {
            return;
        }
        let (view, scratch, inputs) = (self.view(), self.scratch, &*self.inputs);
        let cut = Cut::new(rows);
        self.team.run_ranges(cut.chunks(products), |chunks, thread| {
            // SAFETY: this thread's scratch, asked for once.
            let scratch = unsafe { scratch.get(thread) };
            cut.pieces(products, chunks, |product, columns| {
                for action in &product.actions {
                    match *action {
                        Action::Multiply { matrix, form, to } => {
                            let m = &view.program.matrices[matrix];
                            let weight = view.strips.matrix(view.program, matrix, 0);
                            let x = Input::rows(&inputs[form as usize], 0..form.rows(rows));
                            // SAFETY: these columns belong to this chunk.
                            let y = unsafe { view.output(to, form.rows(rows), product.columns) };
                            m.kernel.run(weight, columns.clone(), x, y, scratch);
                            if form.is_pairs() {
                                for row in 0..rows {
                                    // SAFETY: as above.
                                    unsafe { view.add_rest(to, product.columns, row, rows, &columns) };
                                }
                            }
                        }
                        Action::Apply { op, to, with } => {
                            for row in 0..rows {
                                // SAFETY: as above.
                                unsafe { view.apply(op, to, with, row, &columns) };
                            }
                        }
                    }
                }
            });
        });
    }

    fn expert_matmul(&mut self, route: Buf, used: usize, experts: usize, own: bool, products: &[Product]) {
        let view = self.view();
        let rows = view.rows(route);
        if rows == 0 {
            return;
        }
        let assigned = experts::Assignment::new(self.assignment, view.all(route), used, experts, own);
        let (scratch, inputs) = (self.scratch, &*self.inputs);
        // Few rows go to each expert, whatever the step has.
        let cut = Cut::new(rows * used / assigned.active().max(1));
        let chunks = cut.chunks(products);
        self.team.run_ranges(chunks * assigned.active(), |range, thread| {
            // SAFETY: this thread's scratch, asked for once.
            let scratch = unsafe { scratch.get(thread) };
            for active in range.start / chunks..range.end.div_ceil(chunks) {
                let (expert, in_rows, slots) = assigned.expert(active);
                let start = range.start.max(active * chunks) - active * chunks;
                let end = range.end.min((active + 1) * chunks) - active * chunks;
                cut.pieces(products, start..end, |product, columns| {
                    for action in &product.actions {
                        match *action {
                            Action::Multiply { matrix, form, to } => {
                                let m = &view.program.matrices[matrix];
                                let weight = view.strips.matrix(view.program, matrix, expert);
                                let input = &inputs[form as usize];
                                let x = if form.is_pairs() {
                                    Input::picked_pairs(input, in_rows)
                                } else {
                                    Input::picked(input, in_rows)
                                };
                                let all = rows * used;
                                // SAFETY: these columns of these slots belong to this chunk.
                                let y = unsafe { view.output(to, form.rows(all), product.columns) };
                                m.kernel.run(weight, columns.clone(), x, y.scattered(slots), scratch);
                                if form.is_pairs() {
                                    for &slot in slots {
                                        let row = slot as usize;
                                        // SAFETY: as above.
                                        unsafe { view.add_rest(to, product.columns, row, all, &columns) };
                                    }
                                }
                            }
                            Action::Apply { op, to, with } => {
                                for &slot in slots {
                                    let (row, slot) = (slot as usize / used, slot as usize % used);
                                    let start = slot * product.columns;
                                    let columns = start + columns.start..start + columns.end;
                                    // SAFETY: as above.
                                    unsafe { view.apply(op, to, with, row, &columns) };
                                }
                            }
                        }
                    }
                });
            }
        });
    }

    /// Turns queries and keys, and writes keys and values of all rows to the bank.
    fn keep_keys(&mut self, [q, k, v]: [Buf; 3], shape: &attention::Shape, turns: [Option<&Turn>; 2]) {
        let (view, bank) = (self.view(), self.bank);
        let (layout, keys, layer) = (&self.sizes.kv, shape.keys, shape.op.cache);
        by_rows(
            &mut self.team,
            self.rows[0],
            view.width(q) + view.width(k) + view.width(v),
            |rows, thread| {
                // SAFETY: the scratch is this thread's.
                let spare = unsafe { view.spare(thread) };
                for row in rows {
                    for (buf, turn) in [q, k].into_iter().zip(turns) {
                        if let Some(turn) = turn {
                            // SAFETY: the row belongs to this chunk, and nothing else reads it yet.
                            let row_of = unsafe { view.write(buf, row..row + 1) };
                            rope::rope(&turn.rope, view.angles(turn, row), row_of);
                        }
                    }
                    let position = view.step.positions[row] as usize;
                    let page =
                        view.step.sequences[view.step.sequence[row] as usize].pages[position / PAGE_LEN];
                    let key_heads = view.read(k, row..row + 1).chunks_exact(keys.key_dim);
                    let value_heads = view.read(v, row..row + 1).chunks_exact(keys.value_dim);
                    for (head, (key, value)) in key_heads.zip(value_heads).enumerate() {
                        let (key_bytes, value_bytes) = layout.head(page, layer, head);
                        for (order, numbers, bytes) in
                            [(Order::Keys, key, key_bytes), (Order::Values, value, value_bytes)]
                        {
                            let at = (bytes.start, position % PAGE_LEN);
                            // SAFETY: a position of a page belongs to one row of the step: sequences share only pages
                            // before their rows.
                            unsafe { kv::write(layout.kv, order, bank, at, numbers, spare) };
                        }
                    }
                }
            },
        );
    }

    fn attention(&mut self, q: Buf, y: Buf, sinks: Option<usize>, shape: &attention::Shape) {
        let view = self.view();
        let sizes = self.sizes;
        // SAFETY: the caller alone runs; results, scratch and parts lie apart, and the bank is only read.
        let (bank, y, scratch, parts) = unsafe {
            (
                &*self.bank.part(0..self.bank.len()),
                view.write(y, 0..view.rows(y)),
                view.arena.part(sizes.scratch..sizes.scratch + self.team.threads() * sizes.scratch_len),
                view.arena.part(sizes.parts..sizes.parts + sizes.parts_len),
            )
        };
        let memory = attention::Memory { tiles: self.tiles, scratch, scratch_len: sizes.scratch_len, parts };
        let inputs = attention::Inputs { q: view.all(q), sinks: sinks.map(|sinks| view.vector(sinks)) };
        attention::attention(&mut self.team, self.isa, shape, &sizes.kv, bank, self.step, inputs, y, memory);
    }

    fn short_conv(&mut self, x: Buf, y: Buf, vector: usize, layer: usize) {
        let (view, states) = (self.view(), self.states);
        let (width, weight) = (view.width(x), view.vector(vector));
        let count = attention::cut(self.step, usize::MAX, self.tiles);
        let tiles = &self.tiles[..count];
        let blocks = width.div_ceil(short_conv::COLUMNS);
        let len = weight.len() - width;
        self.team.run(count * blocks, |chunk, _| {
            let (tile, start) = (tiles[chunk / blocks], chunk % blocks * short_conv::COLUMNS);
            let columns = start..width.min(start + short_conv::COLUMNS);
            let rows = tile.rows();
            let state = view.state(tile.sequence(), layer);
            // SAFETY: a sequence has one tile, and each of its chunks has its own columns.
            unsafe {
                let y = Parts::new(view.write(y, rows.clone()));
                let state = Parts::new(states.part(state..state + len));
                ShortConv { x: view.read(x, rows), y, state, weight, width }.run(columns);
            }
        });
    }

    fn gated_delta(&mut self, [q, k, v, decay, beta]: [Buf; 5], y: Buf, op: &GatedDelta) {
        let (view, states) = (self.view(), self.states);
        let count = attention::cut(self.step, usize::MAX, self.tiles);
        let tiles = &self.tiles[..count];
        let blocks = op.value_dim.div_ceil(gated_delta::COLUMNS);
        let len = op.key_dim * op.value_dim;
        self.team.run(count * op.value_heads * blocks, |chunk, thread| {
            let (tile, head) = (tiles[chunk / blocks / op.value_heads], chunk / blocks % op.value_heads);
            let rows = tile.rows();
            let key_head =
                if op.grouped { head * op.key_heads / op.value_heads } else { head % op.key_heads };
            let read = |buf: Buf, start: usize| &view.read(buf, rows.clone())[start..];
            let data = gated_delta::Head {
                q: read(q, key_head * op.key_dim),
                k: read(k, key_head * op.key_dim),
                v: read(v, head * op.value_dim),
                decay: read(decay, head),
                beta: read(beta, head),
                key_stride: op.key_heads * op.key_dim,
                value_stride: op.value_heads * op.value_dim,
                gate_stride: op.value_heads,
                scale: op.scale,
                rows: rows.len(),
                key_dim: op.key_dim,
                value_dim: op.value_dim,
            };
            let state = view.state(tile.sequence(), op.state) + head * len;
            let results = view.range(y, rows.clone());
            // SAFETY: a sequence has one tile, and each of its chunks has its own head and columns; the scratch is
            // this thread's.
            unsafe {
                let y = Parts::new(view.arena.part(results.start + head * op.value_dim..results.end));
                let state = Parts::new(states.part(state..state + len));
                let start = chunk % blocks * gated_delta::COLUMNS;
                gated_delta::gated_delta(view.isa, &data, start, state, y, view.spare(thread));
            }
        });
    }
}

/// Sets row `row` of the input of products in `form`.
///
/// # Safety
/// The row belongs to this chunk.
unsafe fn fill_row(input: &Activations, form: Form, isa: Isa, row: usize, x: &[f32]) {
    // SAFETY: passed on; a row's second half is filled with it.
    unsafe {
        if form.is_pairs() {
            input.fill_pair(isa, row, input.rows() / 2 + row, x);
        } else {
            input.fill_shared(isa, row, x);
        }
    }
}

/// Runs `body` on ranges of `rows` rows, on this thread alone if `numbers` in each are too few to share.
fn by_rows(team: &mut Team<'_>, rows: usize, numbers: usize, body: impl Fn(Range<usize>, usize) + Sync) {
    if rows * numbers <= ALONE || rows == 1 || team.threads() == 1 {
        body(0..rows, 0);
        return;
    }
    let chunk = rows.div_ceil(team.threads() * CHUNKS).max(ALONE.div_ceil(4 * numbers.max(1)));
    team.run(rows.div_ceil(chunk), |i, thread| body(i * chunk..rows.min((i + 1) * chunk), thread));
}
