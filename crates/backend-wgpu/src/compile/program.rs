//! What makes a row out of what lies in buffers: element-wise nodes and transforms, as far as nobody else needs them.

use crate::{
    build::{Builder, is_pointwise},
    kernels::program::{BLOCK, Step},
    tape::{Slot, Word},
};
use nibble_graph::{Op, Value};

/// Results side by side in rows of `stride`, behind `skip` others; sums of `runs` of them.
#[derive(Clone, Copy)]
pub(super) struct Raw {
    pub(super) slot: Slot,
    pub(super) stride: usize,
    pub(super) skip: usize,
    pub(super) runs: usize,
    /// The last product of its call.
    pub(super) last: Value,
}

/// An operand of a program.
#[derive(Clone, Copy)]
pub(super) enum Operand {
    Value(Value),
    Slot(Slot),
}

/// What makes a row.
#[derive(Default)]
pub(super) struct Program {
    pub(super) steps: Vec<Step>,
    pub(super) operands: Vec<Operand>,
    /// Immediates of its loads.
    pub(super) words: Vec<Word>,
    /// Values that it makes on the way.
    pub(super) made: Vec<Value>,
    /// The products whose results it reads.
    pub(super) reads: Vec<Raw>,
}

impl Builder<'_> {
    /// Whether a node is a transform of the blocks that kernels know.
    pub(super) fn is_turned(&self, node: usize) -> bool {
        matches!(self.graph.nodes[node].op, Op::Hadamard { block } if block == BLOCK)
    }

    /// Appends what makes `value`, which element-wise nodes and transforms are part of, from what lies in buffers. `root`: whether
    /// others may read it too.
    pub(super) fn program(&mut self, value: Value, root: bool, p: &mut Program) -> Option<()> {
        let node = self.value(value);
        if let Some(&raw) = self.turned.raws.get(&value) {
            p.steps.push(Step::Load(raw.runs));
            p.operands.push(Operand::Slot(raw.slot));
            p.words.extend([raw.stride, raw.skip].map(|n| Word::Int(n as u32)));
            p.reads.push(raw);
            return Some(());
        }
        if !self.is_made(value, root) {
            if !self.has_buffer(value) {
                return None;
            }
            p.steps.push(Step::Load(1));
            p.operands.push(Operand::Value(value));
            p.words.extend([node.width, 0].map(|n| Word::Int(n as u32)));
            return Some(());
        }
        p.made.push(value);
        if self.is_turned(value.0 as usize) {
            self.program(node.inputs[0], false, p)?;
            p.steps.push(Step::Rotate);
            return Some(());
        }
        let made = |b: &Self, v: Value| b.turned.raws.contains_key(&v) || b.is_made(v, false);
        let main = node.inputs.iter().copied().find(|&v| made(self, v)).unwrap_or(node.inputs[0]);
        let (link, other, vector) = self.as_link(node, main)?;
        match other {
            Some(other) if other == main => return None,
            Some(other) if made(self, other) => {
                self.program(other, false, p)?;
                self.program(main, false, p)?;
                p.steps.push(Step::Join(link));
            }
            other => {
                if other.is_some_and(|other| !self.has_buffer(other)) {
                    return None;
                }
                self.program(main, false, p)?;
                p.steps.push(Step::Link(link));
                p.operands.extend(other.map(Operand::Value).or(vector.map(Operand::Slot)));
            }
        }
        Some(())
    }

    /// Whether a value that no program makes has a buffer, whatever is around it.
    fn has_buffer(&self, value: Value) -> bool {
        match self.value(value).op {
            Op::Embed | Op::Attention(_) | Op::Wanted | Op::Given { .. } => true,
            Op::RmsNorm { .. } => !self.normed_later(value),
            ref op => self.only_user(value).is_none() && is_pointwise(op),
        }
    }

    /// Whether a value is made by element-wise nodes or transforms that have no buffer of their own.
    pub(super) fn is_made(&self, value: Value, root: bool) -> bool {
        let op = &self.value(value).op;
        (root || self.only_user(value).is_some()) && (is_pointwise(op) || self.is_turned(value.0 as usize))
    }

    /// The buffers of a program.
    pub(super) fn operands(&self, program: &Program) -> Vec<Slot> {
        let slot = |operand: &Operand| match *operand {
            Operand::Value(value) => self.slot(value),
            Operand::Slot(slot) => slot,
        };
        program.operands.iter().map(slot).collect()
    }

    /// The last of the element-wise nodes and transforms that alone read each other from a product on.
    pub(super) fn end_of(&self, product: Value) -> Value {
        let mut end = product;
        while let Some(user) = self.only_user(end).map(|user| Value(user as u32)) {
            if !self.is_made(user, true) {
                break;
            }
            end = user;
        }
        end
    }
}
