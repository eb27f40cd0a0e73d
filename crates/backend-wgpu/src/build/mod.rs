//! Parts of compiling: buffers, matrices, calls.

mod links;
mod notes;
mod options;
mod tiles;

use crate::{
    compile::Turned,
    form::Form,
    kernels::draw,
    pack::halves,
    shader::Shader,
    tape::{Call, Content, Dim, Entry, Fit, Matrix, Slot, SlotInfo, Tape, Variant, Word},
};
use nibble_backend::{Activations, Error, PAGE_LEN};
use nibble_graph::{Graph, Node, Rope, Rows, Value, WeightId};
use std::collections::HashMap;

pub use links::is_pointwise;
pub use notes::{Choosing, End, Held, Late, Rounding, Sum};
pub use options::{Options, Plain};

/// The largest number of rows that the kernels for few rows take at once.
pub const FEW: usize = 8;

/// Numbers of rows for which there are kernels of their own, below [`FEW`].
const TILES: [usize; 3] = [1, 4, FEW];

/// Workgroups that a device takes along one direction.
pub const MOST_GROUPS: usize = 65_535;

/// A graph on its way to a tape.
pub struct Builder<'a> {
    /// What is compiled.
    pub graph: &'a Graph,
    /// How.
    pub options: Options<'a>,
    /// What has been made.
    pub tape: Tape,
    /// The buffer of each value that was made.
    pub slots: Vec<Option<Slot>>,
    /// Nodes that are part of a call.
    pub done: Vec<bool>,
    /// Nodes that read each value; `None` for outputs.
    users: Vec<Vec<Option<usize>>>,
    matrices: HashMap<Vec<WeightId>, usize>,
    vectors: HashMap<WeightId, Slot>,
    tables: Vec<(Rope, Slot)>,
    fixed: HashMap<&'static str, Slot>,
    banks: HashMap<usize, [Slot; 2]>,
    states: HashMap<usize, Slot>,
    /// Inputs of products in forms of their own: value, parts, form.
    pub held: HashMap<(Value, usize, Held), [Slot; 2]>,
    /// Norms that are left to the products behind them.
    pub scaled_late: HashMap<Value, Late>,
    /// Routes whose choice is left to the first product of experts.
    pub choosing: HashMap<Value, Choosing>,
    /// Sums of experts that their last product makes.
    pub sums: HashMap<Value, Sum>,
    forms: HashMap<&'static str, Form>,
    /// Products of few rows that make their input themselves.
    pub turned: Turned,
    /// Of routes whose entries are put in order for many rows: tiles, order.
    pub orders: HashMap<Value, [Slot; 2]>,
}

impl<'a> Builder<'a> {
    /// Nothing yet.
    pub fn new(graph: &'a Graph, options: Options<'a>) -> Self {
        let count = graph.nodes.len();
        Self {
            graph,
            options,
            tape: Tape::default(),
            slots: vec![None; count],
            done: vec![false; count],
            users: graph.users(),
            matrices: HashMap::new(),
            vectors: HashMap::new(),
            tables: vec![],
            fixed: HashMap::new(),
            banks: HashMap::new(),
            states: HashMap::new(),
            held: HashMap::new(),
            scaled_late: HashMap::new(),
            choosing: HashMap::new(),
            sums: HashMap::new(),
            forms: HashMap::new(),
            turned: Turned::default(),
            orders: HashMap::new(),
        }
    }

    /// The node that makes `value`.
    pub fn value(&self, value: Value) -> &'a Node {
        &self.graph.nodes[value.0 as usize]
    }

    /// The buffer of a value that was made.
    pub fn slot(&self, value: Value) -> Slot {
        self.slots[value.0 as usize].expect("nodes come after their inputs")
    }

    /// The most rows of that kind.
    pub fn most_rows(&self, rows: Rows) -> usize {
        match rows {
            Rows::Tokens => self.options.limits.rows,
            Rows::Wanted => self.options.limits.wanted,
        }
    }

    /// The most rows that kernels for few rows are given: in strict mode there are no others.
    pub fn few_rows(&self, rows: Rows) -> usize {
        if self.options.strict { self.most_rows(rows) } else { self.most_rows(rows).min(FEW) }
    }

    /// Up to how many rows a step counts as few.
    pub fn few(&self) -> usize {
        if self.options.strict { usize::MAX } else { FEW }
    }

    /// The one node that reads `value`, if only one does and fusing is on.
    pub fn only_user(&self, value: Value) -> Option<usize> {
        match self.users[value.0 as usize][..] {
            [Some(user)] if self.options.fuse => Some(user),
            _ => None,
        }
    }

    /// The nodes that read `value`; `None` for an output.
    pub fn users(&self, value: Value) -> Vec<Option<usize>> {
        self.users[value.0 as usize].clone()
    }

    /// Whether products with few rows by that weight are products of codes.
    pub fn by_codes(&mut self, weight: WeightId) -> bool {
        self.options.caps.int8_dot
            && self.options.plain < Plain::Codes
            && self.options.limits.activations == Activations::Auto
            && self.form(weight).is_codes()
    }

    /// Whether kernels may round what they make for products that follow.
    pub fn rounds(&self) -> bool {
        self.options.plain < Plain::Rounding
    }

    /// Whether a kernel is known to be wrong on this device.
    pub fn is_wrong(&self, shader: &Shader) -> bool {
        !self.options.wrong.is_empty() && self.options.wrong.contains(&shader.key())
    }

    /// A buffer.
    pub fn add_slot(&mut self, content: Content, bytes: usize) -> Slot {
        self.tape.slots.push(SlotInfo { content, bytes: bytes as u64, life: 0..0 });
        Slot(self.tape.slots.len() - 1)
    }

    /// A buffer for something of `bytes` a row.
    pub fn scratch(&mut self, rows: Rows, bytes: usize) -> Slot {
        self.add_slot(Content::Value, self.most_rows(rows).saturating_mul(bytes))
    }

    /// A buffer of its own for `value`.
    pub fn fresh(&mut self, value: Value) -> Slot {
        let node = self.value(value);
        let slot = self.scratch(node.rows, node.width * 4);
        self.bind(value, slot);
        slot
    }

    /// `value` is in `slot`.
    pub fn bind(&mut self, value: Value, slot: Slot) {
        self.slots[value.0 as usize] = Some(slot);
        self.done[value.0 as usize] = true;
    }

    /// One of the buffers that a step fills.
    pub fn step(&mut self, name: &'static str) -> Slot {
        if let Some(&slot) = self.fixed.get(name) {
            return slot;
        }
        let limits = self.options.limits;
        let table = limits.sequences.saturating_mul(limits.context.div_ceil(PAGE_LEN));
        let (content, words) = match name {
            "rows" => (Content::Rows, 4 * limits.rows),
            "sequences" => (Content::Sequences, 8 * limits.sequences),
            "pages" => (Content::Pages, table),
            "draws" => (Content::Draws, draw::WORDS * limits.sequences),
            _ => (Content::Wanted, limits.wanted),
        };
        let slot = self.add_slot(content, words.saturating_mul(4));
        self.fixed.insert(name, slot);
        slot
    }

    /// Keys and values of a layer.
    pub fn bank(&mut self, layer: usize, page_words: [u32; 2]) -> [Slot; 2] {
        if let Some(&slots) = self.banks.get(&layer) {
            return slots;
        }
        let pages = self.options.limits.pages;
        let slots = page_words
            .map(|words| self.add_slot(Content::Bank(words), pages.saturating_mul(words as usize * 4)));
        self.banks.insert(layer, slots);
        slots
    }

    /// State of a layer.
    pub fn state(&mut self, layer: usize) -> Slot {
        if let Some(&slot) = self.states.get(&layer) {
            return slot;
        }
        let len = self.graph.state_layers[layer].len;
        let bytes = self.options.limits.state_slots.saturating_mul(len * 4);
        let slot = self.add_slot(Content::State(len as u32), bytes);
        self.states.insert(layer, slot);
        slot
    }

    /// A weight as numbers.
    pub fn vector(&mut self, id: WeightId) -> Slot {
        if let Some(&slot) = self.vectors.get(&id) {
            return slot;
        }
        let bytes = self.graph.weight(id).data.shape().elements() * 4;
        let slot = self.add_slot(Content::Vector(id), bytes);
        self.vectors.insert(id, slot);
        slot
    }

    /// Cosines and sines: of all positions, or of the step's rows where they depend on the prompt.
    pub fn turns(&mut self, rope: &Rope) -> (Slot, bool) {
        let by_row = matches!(rope.frequencies, nibble_graph::Frequencies::Dynamic { .. });
        let same = |r: &Rope| {
            r.dims == rope.dims && r.frequencies == rope.frequencies && r.magnitude == rope.magnitude
        };
        if let Some((_, slot)) = self.tables.iter().find(|(r, _)| same(r)) {
            return (*slot, by_row);
        }
        let limits = self.options.limits;
        let (content, rows) = match by_row {
            true => (Content::Turns(rope.clone()), limits.rows),
            false => (Content::Table(rope.clone()), limits.context),
        };
        let slot = self.add_slot(content, rows.saturating_mul(rope.dims * 4));
        self.tables.push((rope.clone(), slot));
        (slot, by_row)
    }

    /// The form of a weight.
    pub fn form(&mut self, id: WeightId) -> Form {
        let weight = &self.graph.weight(id).data;
        let codec = weight.codec();
        let name = codec.spec().name;
        if self.options.wide.contains(&name) {
            return Form::widest(codec.kind());
        }
        if let Some(tiles) = Form::of_tiles(weight, self.options.caps.half) {
            return tiles;
        }
        self.forms.entry(name).or_insert_with(|| Form::of(codec)).clone()
    }

    /// Weights of one form and row length as one matrix. Parts hold whole matrices of a stack.
    ///
    /// # Errors
    /// [`Error::Memory`] if a matrix of a stack is larger than what can be bound.
    pub fn matrix(&mut self, weights: &[WeightId]) -> Result<usize, Error> {
        if let Some(&index) = self.matrices.get(weights) {
            return Ok(index);
        }
        let form = self.form(weights[0]);
        let shape = self.graph.weight(weights[0]).data.shape();
        let row_len = shape.row_len();
        let rows: usize = weights.iter().map(|&w| self.graph.weight(w).data.shape().rows()).sum();
        let unit = if let [_, n, _] = shape.dims() { *n } else { 64 };
        let widest = form.words(halves(row_len)).into_iter().max().unwrap_or(1).max(1) as u64 * 4;
        let fit = (self.options.caps.binding / widest) as usize / unit * unit;
        if fit == 0 {
            let (what, needed) = (self.graph.weight(weights[0]).name.clone(), widest * unit as u64);
            return Err(Error::Memory { what, needed, available: self.options.caps.binding });
        }
        let index = self.tape.matrices.len();
        let mut parts = vec![];
        let mut planes = vec![];
        for first in (0..rows).step_by(fit) {
            let range = first..rows.min(first + fit);
            // Scales of rows are two in a word, so their plane is counted for the part.
            let words = form.words(halves(row_len) * range.len());
            let slots = words.iter().map(|words| self.add_slot(Content::Plane, words * 4));
            planes.push(slots.collect());
            parts.push(range);
        }
        self.tape.matrices.push(Matrix { weights: weights.to_vec(), form, row_len, parts, planes });
        self.matrices.insert(weights.to_vec(), index);
        Ok(index)
    }

    /// Appends an entry that does the same for any number of rows.
    pub fn push(&mut self, value: Value, result: Slot, calls: Vec<Call>) {
        self.push_variants(value, Some(result), vec![Variant { fit: Fit::ALL, calls }]);
    }

    /// Appends an entry.
    pub fn push_variants(&mut self, value: Value, result: Option<Slot>, variants: Vec<Variant>) {
        let node = self.value(value);
        let entry = Entry {
            rows: node.rows,
            variants,
            what: self.graph.label(&[value]),
            result: result.map(|slot| (slot, node.width)),
        };
        self.tape.entries.push(entry);
    }

    /// Numbers of rows with kernels for few rows, and whether more rows can come.
    pub fn tiles(&self, rows: Rows) -> (Vec<usize>, bool) {
        let most = self.most_rows(rows);
        let mut tiles: Vec<usize> = vec![];
        for tile in TILES {
            tiles.push(tile);
            if tile >= most {
                return (tiles, false);
            }
        }
        (tiles, true)
    }
}

/// A call.
pub fn call(shader: Shader, slots: Vec<Slot>, words: Vec<Word>, grid: [Dim; 3]) -> Call {
    assert_eq!(shader.access.len(), slots.len(), "{}: bindings", shader.label);
    assert_eq!(shader.words, words.len() + 1, "{}: words", shader.label);
    Call { shader, slots, words, grid }
}

/// Whole numbers as immediates.
pub fn ints<const N: usize>(numbers: [usize; N]) -> Vec<Word> {
    numbers.iter().map(|&n| Word::Int(n as u32)).collect()
}

/// Blocks of `size` columns, rows.
pub fn columns(width: usize, size: usize) -> [Dim; 3] {
    [Dim::Fixed(width.div_ceil(size) as u32), Dim::Rows(1, 1), Dim::Fixed(1)]
}
