//! Products of few rows: their kernels, and the calls of these.

use super::products::BLOCK;
use crate::{
    build::{Builder, Choosing, End, Held, Late, Rounding, call, ints},
    form::Form,
    kernels::{
        chain::Link,
        ends::Round,
        gemv::{self, Choice, Gemv, Input},
    },
    pack::halves,
    selfcheck::Product,
    shader::Shader,
    tape::{Call, Dim, Slot, Word},
    tune::{self, Tunable, Way},
};
use nibble_graph::{Activation, Value};

/// What a product of few rows is made of.
pub(super) struct Few<'a> {
    pub(super) form: &'a Form,
    /// The matrix, and the second one of a gate.
    pub(super) first: usize,
    pub(super) second: Option<(usize, Activation)>,
    /// The input, how many parts of a row are rows of their own, and how long these are.
    pub(super) input: (Value, usize, usize),
    /// Whether these are multiplied as codes.
    pub(super) codes: bool,
    pub(super) choice: Choice,
    /// The route, and rows of an expert's matrix.
    pub(super) experts: Option<(Slot, usize)>,
    /// Biases of experts that are summed.
    pub(super) bias: Option<Slot>,
    /// What the first kernel to read a route needs, if it makes the choice.
    pub(super) choosing: Option<Choosing>,
    pub(super) ends: &'a [End],
    pub(super) round: Option<Rounding>,
    /// The norm of the input, if it is left to this product.
    pub(super) late: Option<Late>,
}

/// Results from which on there are workgroups enough for subgroups that make several.
const MANY: usize = 1 << 15;

/// Results of a product of floats, such as a router's, below which one of them for a subgroup is hardly work for a device.
const SCARCE: usize = 1 << 10;

/// What the best sizes of a product depend on beside rows.
struct Kind {
    gate: bool,
    round: bool,
    experts: bool,
    /// Whether it is one of codes for few results.
    small: bool,
    /// Whether it is one of floats for very few.
    scarce: bool,
}

/// Results that a subgroup makes at once, and pieces of a row that a lane asks for ahead, by rows of the input.
fn sizes(tile: usize, kind: &Kind) -> (usize, usize) {
    match (tile, kind.gate, kind.round) {
        (1 | 4, false, false) if kind.scarce => (1, 4),
        (1, false, false) if kind.small => (1, 2),
        (1, false, false) => (2, 4),
        (1, false, true) => (1, 4),
        (1, true, _) if kind.experts => (1, 4),
        (1, true, _) => (2, 2),
        (4, false, false) => (2, 1),
        (4, _, _) => (2, 2),
        (_, false, false) => (4, 1),
        _ => (2, 1),
    }
}

/// Rows that a kernel takes at once and its sizes, the fastest first: what is tried until one is right.
fn candidates(tile: usize, sizes: impl Fn(usize) -> (usize, usize)) -> Vec<(usize, usize, usize)> {
    let sized = |tile| {
        let (per_sub, ahead) = sizes(tile);
        (tile, per_sub, ahead)
    };
    vec![sized(tile), (tile, 1, 1), sized(1), (1, 1, 1)]
}

impl Few<'_> {
    /// Kernel and shape, in words.
    fn key(&self, b: &Builder<'_>, tile: usize) -> String {
        let n = b.tape.matrices[self.first].parts[0].len();
        let mut key = format!("{} by {tile} rows, {n}x{}", self.form.describe(), self.input.2);
        let words = [
            (" of experts", matches!(self.choice, Choice::Experts { .. })),
            (" of all experts", matches!(self.choice, Choice::Sum { .. })),
            (" chosen", self.choosing.is_some()),
            (" gated", self.second.is_some()),
            (" rounded", self.round.is_some()),
        ];
        words.into_iter().filter(|(_, is)| *is).for_each(|(word, _)| key += word);
        key
    }

    /// [`sizes`] for `tile` rows; `few`: those whose results are rounded.
    fn sizes(&self, b: &Builder<'_>, few: bool, tile: usize) -> (usize, usize) {
        let results = b.tape.matrices[self.first].parts[0].len();
        let kind = Kind {
            gate: self.second.is_some(),
            round: few && self.round.is_some(),
            experts: self.choice != Choice::All,
            small: self.codes && results < MANY,
            scarce: !self.codes && results < SCARCE,
        };
        sizes(tile, &kind)
    }

    /// A kernel of that size, the results that a workgroup of it makes, and the rows it takes.
    fn kernel(
        &self,
        b: &Builder<'_>,
        few: bool,
        (tile, per_sub, ahead): (usize, usize, usize),
    ) -> (Shader, usize, usize) {
        let (round, late) = (self.round.as_ref().filter(|_| few), self.late.filter(|_| few));
        let choosing = self.choosing.as_ref().filter(|_| few);
        let per_sub = per_sub.next_multiple_of(self.form.at_once());
        let links: Vec<Vec<Link>> = self.ends.iter().map(|e| e.0.clone()).collect();
        let lanes = b.options.caps.subgroup;
        let threads = match (round, tile, per_sub) {
            (Some(_), ..) => lanes[0] * (BLOCK / per_sub) as u32,
            (None, 1, 1) if self.codes => 256,
            _ => 128,
        };
        let subs = (threads / lanes[0]).clamp(1, 16) as usize;
        let k = self.input.2;
        let pieces = match self.choice {
            Choice::Sum { used, .. } => halves(k) * used,
            _ => halves(k),
        };
        let g = Gemv {
            form: self.form,
            input: match self.codes {
                true => Input::Codes,
                false if k.is_multiple_of(16) => Input::Floats,
                false => Input::Ragged,
            },
            tile,
            per_sub,
            threads,
            lanes: lanes[0] as usize,
            per_group: if round.is_some() { BLOCK } else { per_sub * subs },
            gate: self.second.map(|(_, f)| f),
            products: &links,
            choice: self.choice,
            ahead,
            even: lanes[0] == lanes[1] && pieces.is_multiple_of(lanes[0] as usize * ahead),
            norm: late.map(|late| late.eps),
            choose: choosing.map(|c| (c.route, c.bias.is_some())),
            round: round.map(|r| if r.norm.is_some() { Round::ForNorm } else { Round::Plain }),
        };
        (gemv::gemv(&g).with(Product::few(&g, lanes[0] as usize)), g.per_group, tile)
    }

    /// The calls for up to `tile` rows at once of an input `held` so; `forced` to one way or in the best one that is right.
    pub(super) fn calls(&self, b: &Builder<'_>, tile: usize, held: Held, forced: Option<Way>) -> Vec<Call> {
        let few = held == Held::CodesFew;
        let (round, late) = (self.round.as_ref().filter(|_| few), self.late.filter(|_| few));
        let choosing = self.choosing.as_ref().filter(|_| few);
        let right = |sizes| Some(self.kernel(b, few, sizes)).filter(|made| !b.is_wrong(&made.0));
        let tuned = b.options.tuned.get(&self.key(b, tile)).copied();
        let best = forced.or(tuned).map(|[per_sub, ahead]| (tile, per_sub, ahead));
        let plainer = candidates(tile, |tile| self.sizes(b, few, tile));
        let mut sizes = best.into_iter().chain(plainer);
        let (shader, per_group, tile) = match forced {
            Some(_) => self.kernel(b, few, sizes.next().expect("a way")),
            None => sizes.find_map(right).unwrap_or_else(|| self.kernel(b, few, (1, 1, 1))),
        };
        let (input, parts, k) = self.input;
        let matrix = &b.tape.matrices[self.first];
        let mut calls = vec![];
        for (part, range) in matrix.parts.iter().enumerate() {
            let mut slots = match (self.codes, late) {
                (true, _) => b.held[&(input, parts, held)].to_vec(),
                (false, Some(late)) => vec![late.input[0]],
                (false, None) => vec![b.slot(input)],
            };
            if let Some(late) = late {
                slots.push(late.squares);
                slots.extend((!self.codes).then_some(late.input[1]));
            }
            slots.extend(&matrix.planes[part]);
            let mut words = ints([range.len(), range.start, halves(k), k]);
            words.push(Word::Factor(self.first, part));
            if let Some((second, _)) = self.second {
                slots.extend(&b.tape.matrices[second].planes[part]);
                words.push(Word::Factor(second, part));
            }
            if let Some(c) = choosing {
                slots.push(c.logits);
                slots.extend(c.bias);
            }
            if let Some((route, each)) = self.experts {
                slots.push(route);
                words.push(Word::Int(each as u32));
            }
            words.extend(choosing.map(|c| Word::Int(c.experts as u32)));
            slots.extend(self.bias);
            for (_, operands, y, width) in self.ends {
                slots.push(*y);
                slots.extend(operands);
                words.push(Word::Int(*width as u32));
            }
            if let Some(round) = round {
                slots.extend(round.held);
                slots.extend(round.norm.iter().flatten());
            }
            let n = self.experts.map_or(range.len(), |(_, each)| each);
            let rows = match self.choice {
                Choice::All => Dim::Rows(1, tile as u32),
                Choice::Experts { used, .. } => Dim::Rows(used as u32, 1),
                Choice::Sum { .. } => Dim::Rows(1, 1),
            };
            let grid = [Dim::Fixed(n.div_ceil(per_group) as u32), rows, Dim::Fixed(1)];
            calls.push(call(shader.clone(), slots, words, grid));
        }
        calls
    }

    /// Lists the ways to run the kernel for so many rows, if they are to be measured.
    pub(super) fn tunable(&self, b: &mut Builder<'_>, tile: usize) {
        let key = self.key(b, tile);
        if !b.options.tune || b.options.tuned.contains_key(&key) || b.tape.tunes(&key) {
            return;
        }
        let gate = self.second.is_some();
        let (per_sub, ahead) = self.sizes(b, true, tile);
        let call = |way| (way, self.calls(b, tile, Held::CodesFew, Some(way)).swap_remove(0));
        let ways = tune::ways([per_sub, ahead], tile, gate).into_iter().map(call).collect();
        let planes = b.tape.matrices[self.first].planes[0].iter();
        let bytes = planes.map(|plane| b.tape.slots[plane.0].bytes).sum();
        b.tape.tunables.push(Tunable { key, rows: tile, bytes, ways });
    }
}
