//! What a plan does, without a device: buffers by their contents, and calls of kernels in order.

use crate::{form::Form, kernels::group::most_tiles, shader::Shader, tune::Tunable};
use nibble_graph::{Label, Rope, Rows, WeightId};
use std::ops::Range;

/// A buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub usize);

/// What a buffer holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// Something that lives between calls of one step.
    Value,
    /// A plane of a part of a matrix.
    Plane,
    /// A weight as numbers.
    Vector(WeightId),
    /// Cosines and sines of all positions.
    Table(Rope),
    /// Keys or values of a layer, with the words of a page.
    Bank(u32),
    /// State of a recurrent layer, with the words of a slot.
    State(u32),
    /// Four words for each row: token, position, number of its sequence, where its pages begin.
    Rows,
    /// Zeros that kernels count with and put back.
    Counts,
    /// Eight words for each sequence: where its pages begin, slot of state, prompt length, then first row and number of
    /// rows.
    Sequences,
    /// Pages of all sequences.
    Pages,
    /// Numbers of wanted rows.
    Wanted,
    /// How the tokens after a step are drawn.
    Draws,
    /// Numbers from outside: which of them, and how many in a row.
    Given(usize, usize),
    /// Cosines and sines of the step's rows.
    Turns(Rope),
}

impl Content {
    /// Whether every step fills it.
    pub fn is_description(&self) -> bool {
        matches!(
            self,
            Self::Rows
                | Self::Sequences
                | Self::Pages
                | Self::Wanted
                | Self::Draws
                | Self::Turns(_)
                | Self::Given(..)
        )
    }

    /// What it is, for errors.
    pub fn describe(&self) -> &'static str {
        match self {
            Self::Value | Self::Counts | Self::Given(..) => "a value",
            Self::Plane | Self::Vector(_) => "a weight",
            Self::Table(_) | Self::Turns(_) => "a table of rotations",
            Self::Bank(_) => "one layer's bank of keys or values",
            Self::State(_) => "one layer's recurrent state",
            Self::Rows | Self::Sequences | Self::Pages | Self::Wanted | Self::Draws => "a step's description",
        }
    }
}

/// A buffer's size and use.
#[derive(Clone, Debug)]
pub struct SlotInfo {
    /// What it holds.
    pub content: Content,
    /// Its size.
    pub bytes: u64,
    /// The first and the last entry that use it.
    pub life: Range<usize>,
}

/// An immediate.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// A number.
    Int(u32),
    /// A number.
    Float(f32),
    /// What the scales of a part of a matrix are multiplied by.
    Factor(usize, usize),
}

/// How many workgroups along one direction.
#[derive(Clone, Copy, Debug)]
pub enum Dim {
    /// So many.
    Fixed(u32),
    /// Rows times the first, divided by the second, rounded up.
    Rows(u32, u32),
    /// Tiles of entries of experts: see [`crate::kernels::group`].
    Tiles {
        /// Experts of a row.
        used: usize,
        /// Experts.
        experts: usize,
        /// Rows of a tile.
        height: usize,
    },
    /// One for each sequence.
    Sequences,
}

impl Dim {
    /// The number for so many rows and sequences.
    pub fn of(self, rows: usize, sequences: usize) -> u32 {
        match self {
            Self::Fixed(n) => n,
            Self::Rows(times, by) => (rows as u32 * times).div_ceil(by),
            Self::Tiles { used, experts, height } => most_tiles(rows * used, experts, height) as u32,
            Self::Sequences => sequences as u32,
        }
    }
}

/// A kernel on buffers.
#[derive(Clone, Debug)]
pub struct Call {
    /// The kernel.
    pub shader: Shader,
    /// Its buffers.
    pub slots: Vec<Slot>,
    /// Its immediates after the first, which is the number of rows.
    pub words: Vec<Word>,
    /// Its grid.
    pub grid: [Dim; 3],
}

/// Which steps calls are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// The most rows.
    pub most: usize,
    /// The fewest rows that a sequence has on average.
    pub each: usize,
    /// The longest sequence that a row may see, if no sequence may have two rows: otherwise they are for all.
    pub alone: Option<usize>,
}

impl Fit {
    /// Steps of up to `most` rows.
    pub const fn rows(most: usize) -> Self {
        Self { most, each: 0, alone: None }
    }

    /// All steps.
    pub const ALL: Self = Self::rows(usize::MAX);

    /// Whether a step is one of them.
    pub fn takes(&self, rows: usize, shape: StepShape) -> bool {
        let alone = self.alone.is_none_or(|most| shape.alone && shape.reach <= most);
        rows <= self.most && rows >= self.each * shape.sequences && alone
    }
}

/// What calls of a step depend on beside the number of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepShape {
    /// Sequences.
    pub sequences: usize,
    /// Whether no sequence has two rows.
    pub alone: bool,
    /// Positions of the longest sequence up to its last row.
    pub reach: usize,
}

/// Calls for some steps.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Which.
    pub fit: Fit,
    /// What to do.
    pub calls: Vec<Call>,
}

/// What is done at one place of the graph.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Which rows it works on.
    pub rows: Rows,
    /// By number of rows, rising.
    pub variants: Vec<Variant>,
    /// Op and layer, for errors and traces.
    pub what: Label,
    /// Where its result is, with the width of a row.
    pub result: Option<(Slot, usize)>,
}

/// A matrix on the device: weights with the same row length stacked, cut into parts that can be bound.
#[derive(Clone, Debug)]
pub struct Matrix {
    /// What it is made of.
    pub weights: Vec<WeightId>,
    /// How it lies.
    pub form: Form,
    /// Numbers in a row.
    pub row_len: usize,
    /// Rows of each part.
    pub parts: Vec<Range<usize>>,
    /// The buffers of each part, plane by plane.
    pub planes: Vec<Vec<Slot>>,
}

/// A compiled graph.
#[derive(Clone, Debug, Default)]
pub struct Tape {
    /// Buffers.
    pub slots: Vec<SlotInfo>,
    /// Matrices.
    pub matrices: Vec<Matrix>,
    /// In order.
    pub entries: Vec<Entry>,
    /// Kernels whose fastest way is not known, if they are to be measured.
    pub tunables: Vec<Tunable>,
    /// Where the graph's outputs are: buffer, rows, width.
    pub outputs: Vec<(Slot, Rows, usize)>,
}

impl Tape {
    /// Whether a kernel of that name is to be measured.
    pub fn tunes(&self, key: &str) -> bool {
        self.tunables.iter().any(|tunable| tunable.key == key)
    }

    /// Buffers of values that are not needed at the same time share one: the buffer of each slot, and the sizes of all.
    pub fn share(&self) -> (Vec<usize>, Vec<u64>) {
        let mut sizes: Vec<u64> = vec![];
        let mut busy: Vec<usize> = vec![];
        let mut places = vec![usize::MAX; self.slots.len()];
        let mut order: Vec<usize> = (0..self.slots.len()).collect();
        order.sort_by_key(|&i| self.slots[i].life.start);
        for i in order {
            let slot = &self.slots[i];
            let is_value = matches!(slot.content, Content::Value);
            // The one that fits best, else the largest.
            let free = (0..sizes.len()).filter(|&b| is_value && busy[b] <= slot.life.start);
            let best = free.min_by_key(|&b| (sizes[b] < slot.bytes, sizes[b].abs_diff(slot.bytes)));
            let end = if is_value { slot.life.end } else { usize::MAX };
            places[i] = match best {
                Some(b) => {
                    sizes[b] = sizes[b].max(slot.bytes);
                    busy[b] = end;
                    b
                }
                None => {
                    sizes.push(slot.bytes);
                    busy.push(end);
                    sizes.len() - 1
                }
            };
        }
        (places, sizes)
    }

    /// Notes the first and last use of every buffer.
    pub fn note_lives(&mut self) {
        for slot in &mut self.slots {
            (slot.life.start, slot.life.end) = (usize::MAX, 0);
        }
        for (i, entry) in self.entries.iter().enumerate() {
            for call in entry.variants.iter().flat_map(|v| &v.calls) {
                for slot in &call.slots {
                    let life = &mut self.slots[slot.0].life;
                    *life = life.start.min(i)..life.end.max(i + 1);
                }
            }
        }
        for (slot, ..) in &self.outputs {
            self.slots[slot.0].life.end = usize::MAX;
        }
    }
}
