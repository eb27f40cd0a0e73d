//! Steps of a few rows where inputs and results of products are rotated: products that make their input themselves.
//!
//! Element-wise nodes and transforms between products have no calls then. What they make for others than products is written
//! by the first product that makes it, or by a call for the results of one product.

use super::program::{Program, Raw};
use crate::{
    build::{Builder, call},
    kernels::{
        program::{BLOCK, Step, vectors},
        rotated::{self, Rotated, Sizes},
    },
    pack::halves,
    tape::{Call, Content, Dim, Fit, Slot, Variant, Word},
    trellis,
};
use nibble_graph::{Op, Value, WeightId};
use std::collections::HashMap;

/// Numbers of a row that a workgroup makes at most, unless a norm needs all of them.
const RUN: usize = 2048;

/// Numbers of rows for which there are kernels, rising: those of a step up to which this is done.
const TILES: [usize; 3] = [1, 2, 4];

/// The last of them.
const ROWS: usize = TILES[TILES.len() - 1];

/// Invocations of a workgroup.
const THREADS: usize = 256;

/// Workgroups that a product of one row should have about; of more, which cost more to make, as many fewer.
const GROUPS: usize = 512;

/// Buffers that a kernel may have.
const MOST_BUFFERS: usize = 24;

/// What is known of steps of so few rows.
#[derive(Default)]
pub struct Turned {
    /// Where results of products lie, not yet rotated.
    pub(super) raws: HashMap<Value, Raw>,
    /// What nodes do instead of what they do for more rows.
    singles: HashMap<Value, Single>,
    /// Results that one call rotates: that of the last of them.
    waiting: Vec<(Value, Program)>,
}

/// What an entry does for them.
enum Single {
    /// Nothing: others make what is needed of it.
    Nothing,
    /// A product.
    Product(Box<Product>),
}

/// Products of each of them.
struct Product {
    program: Program,
    keep: Option<Value>,
    /// Weight and epsilon.
    norm: Option<(WeightId, f32)>,
    /// Vector and matrix of each.
    matrices: Vec<[WeightId; 2]>,
    run: usize,
    raw: Slot,
}

impl Builder<'_> {
    /// Finds the products that make their input themselves.
    pub(super) fn find_rotated(&mut self) {
        if !self.options.fuse || self.options.strict || !self.rounds() {
            return;
        }
        for i in 0..self.graph.nodes.len() {
            let value = Value(i as u32);
            if self.turned.raws.contains_key(&value) {
                continue;
            }
            let Some(source) = self.rotated_from(value) else { continue };
            let same = |b: &Self, other: Value| {
                b.rotated_from(other) == Some(source)
                    && b.is_like(other, value)
                    && !b.turned.raws.contains_key(&other)
            };
            let nodes = (i..self.graph.nodes.len()).map(|i| Value(i as u32));
            let members: Vec<Value> = nodes.filter(|&v| same(self, v)).collect();
            if members.len() <= rotated::NAMES.len() {
                self.plan_product(&members, source);
            }
        }
    }

    /// Whether two products have rows of one length in matrices of one form.
    fn is_like(&self, a: Value, b: Value) -> bool {
        let [a, b] = [a, b].map(|v| &self.graph.weight(self.value(v).weights[0]).data);
        a.shape().row_len() == b.shape().row_len() && a.codec().spec().name == b.codec().spec().name
    }

    /// The row that a product with tiles multiplies, before a vector and a transform, if the result is transformed too.
    fn rotated_from(&self, value: Value) -> Option<Value> {
        let node = self.value(value);
        let tiles = |id: WeightId| trellis::codec(&self.graph.weight(id).data).is_some();
        if !matches!(node.op, Op::Matmul)
            || !tiles(node.weights[0])
            || !self.is_turned(self.only_user(value)?)
        {
            return None;
        }
        let turned = node.inputs[0];
        let gain = self.value(turned).inputs.first().copied()?;
        let only = |v: Value, user: Value| self.only_user(v) == Some(user.0 as usize);
        let fits = self.is_turned(turned.0 as usize) && only(turned, value) && only(gain, turned);
        let [source] = self.value(gain).inputs[..] else { return None };
        let whole = |id: WeightId| self.graph.weight(id).data.shape().elements() == self.value(gain).width;
        (fits && matches!(self.value(gain).op, Op::Gain) && whole(self.value(gain).weights[0]))
            .then_some(source)
    }

    fn plan_product(&mut self, members: &[Value], source: Value) -> Option<()> {
        let first = members[0];
        let gains: Vec<Value> =
            members.iter().map(|&m| self.value(self.value(m).inputs[0]).inputs[0]).collect();
        let is_gain = |user: &Option<usize>| user.is_some_and(|u| gains.contains(&Value(u as u32)));
        let node = self.value(source);
        let k = node.width;
        // A norm that only these products read.
        let norm = match node.op {
            Op::RmsNorm { eps } if self.users(source).iter().all(is_gain) => {
                let by = node.weights[0];
                (self.graph.weight(by).data.shape().elements() == k).then_some((by, eps))
            }
            _ => None,
        };
        let row = if norm.is_some() { node.inputs[0] } else { source };
        let mut program = Program::default();
        self.program(row, true, &mut program)?;
        // What others read too.
        let own =
            |user: &Option<usize>| is_gain(user) || (norm.is_some() && *user == Some(source.0 as usize));
        let others: Vec<_> = self.users(row).into_iter().filter(|user| !own(user)).collect();
        let keep = (!program.made.is_empty() && !others.is_empty()).then_some(row);
        let later = |user: &Option<usize>| user.is_none_or(|user| user > first.0 as usize);
        if keep.is_some() && !others.iter().all(later) {
            return None;
        }
        let run = if norm.is_some() { k } else { k.min(RUN) };
        let widths: Vec<usize> = members.iter().map(|&m| self.value(m).width).collect();
        let buffers = program.operands.len() + 3 + 2 * members.len();
        let blocks = |n: &usize| n.is_multiple_of(BLOCK);
        if !blocks(&k) || !widths.iter().all(blocks) || buffers > MOST_BUFFERS || !self.has_room(run, 1) {
            return None;
        }
        for &m in members {
            let matrix = self.matrix(&self.value(m).weights[..1]).ok()?;
            if self.tape.matrices[matrix].parts.len() > 1 {
                return None;
            }
        }
        let (all, runs) = (widths.iter().sum::<usize>(), k.div_ceil(run));
        let raw = self.add_slot(Content::Value, all * runs * 4 * ROWS);
        let mut skip = 0;
        for (&m, width) in members.iter().zip(&widths) {
            let last = *members.last().expect("one at least");
            self.turned.raws.insert(m, Raw { slot: raw, stride: all, skip, runs, last });
            skip += width;
            self.turned.singles.insert(m, Single::Nothing);
        }
        // Each result has to be one that a program can make.
        let made = |b: &mut Self, &m: &Value| {
            let mut program = Program::default();
            b.program(b.end_of(m), true, &mut program).is_some() && program.operands.len() < MOST_BUFFERS
        };
        if !members.iter().all(|m| made(self, m)) {
            for m in members {
                self.turned.raws.remove(m);
                self.turned.singles.remove(m);
            }
            return None;
        }
        let turned = members.iter().map(|&m| self.value(m).inputs[0]);
        let made = program.made.iter().copied().chain(gains.iter().copied()).chain(turned);
        for value in made.chain(norm.map(|_| source)).collect::<Vec<_>>() {
            self.turned.singles.insert(value, Single::Nothing);
        }
        let weights = |(&m, &gain): (&Value, &Value)| [self.value(gain).weights[0], self.value(m).weights[0]];
        let matrices = members.iter().zip(&gains).map(weights).collect();
        let product = Product { program, keep, norm, matrices, run, raw };
        self.turned.singles.insert(first, Single::Product(Box::new(product)));
        Some(())
    }

    /// Appends an entry, which does something else for few rows if `value` is part of a product there.
    pub(super) fn push_single(&mut self, value: Value, result: Option<Slot>, mut variants: Vec<Variant>) {
        if let Some(singles) = self.single(value) {
            variants.retain(|variant| variant.fit.most > ROWS);
            variants.splice(0..0, singles);
        }
        self.push_variants(value, result, variants);
    }

    fn single(&mut self, value: Value) -> Option<Vec<Variant>> {
        let all = |calls| vec![Variant { fit: Fit::rows(ROWS), calls }];
        match self.turned.singles.remove(&value) {
            Some(Single::Nothing) => Some(all(vec![])),
            Some(Single::Product(product)) => {
                let variant =
                    |most| Variant { fit: Fit::rows(most), calls: vec![self.product_call(&product, most)] };
                Some(TILES.into_iter().map(variant).collect())
            }
            None => self.rows_call(value).map(all),
        }
    }

    /// The call for up to `most` rows.
    fn product_call(&mut self, product: &Product, most: usize) -> Call {
        let matrices: Vec<usize> = product
            .matrices
            .iter()
            .map(|&[_, weight]| self.matrix(&[weight]).expect("it was made before"))
            .collect();
        let form = self.tape.matrices[matrices[0]].form.clone();
        let k = self.tape.matrices[matrices[0]].row_len;
        let widths: Vec<usize> = matrices.iter().map(|&m| self.tape.matrices[m].parts[0].len()).collect();
        let runs = k.div_ceil(product.run);
        // As many rows together as there is room for.
        let tile = (1..=most).rev().find(|tile| self.has_room(product.run, *tile)).unwrap_or(1);
        let sizes = self.sizes_of(widths.iter().sum::<usize>() * runs, tile, form.at_once());
        let lanes = self.options.caps.subgroup;
        let g = Rotated {
            form: &form,
            program: &product.program.steps,
            keep: product.keep.is_some(),
            norm: product.norm.map(|norm| norm.1),
            matrices: matrices.len(),
            run: product.run,
            sizes,
            even: lanes[0] == lanes[1]
                && k.is_multiple_of(product.run)
                && halves(product.run).is_multiple_of(lanes[0] as usize * sizes.ahead),
        };
        let shader = rotated::product(&g);
        let mut slots = self.operands(&product.program);
        let mut words = vec![Word::Int(k as u32), Word::Int(halves(k) as u32)];
        words.extend(&product.program.words);
        slots.extend(product.keep.map(|row| self.slot(row)));
        slots.extend(product.norm.map(|(by, _)| self.vector(by)));
        for ((&matrix, width), [by, _]) in matrices.iter().zip(&widths).zip(&product.matrices) {
            slots.push(self.vector(*by));
            slots.extend(&self.tape.matrices[matrix].planes[0]);
            words.extend([Word::Int(*width as u32), Word::Factor(matrix, 0)]);
        }
        slots.push(product.raw);
        let groups: usize = widths.iter().map(|n| n.div_ceil(sizes.per_group)).sum();
        let grid = [Dim::Fixed(groups as u32), Dim::Rows(1, tile as u32), Dim::Fixed(runs as u32)];
        call(shader, slots, words, grid)
    }

    /// Whether workgroup memory holds a run of so many rows, with what sums of squares take.
    fn has_room(&self, run: usize, rows: usize) -> bool {
        rows * (16 * vectors(run) + THREADS) <= self.options.caps.workgroup as usize
    }

    /// Sizes of a product that makes so many results of `tile` rows.
    fn sizes_of(&self, results: usize, tile: usize, at_once: usize) -> Sizes {
        let (threads, per_sub, ahead) = (THREADS, at_once.max(2), 2);
        let lanes = self.options.caps.subgroup[0] as usize;
        let least = per_sub * (threads / lanes).max(1);
        let per_group = (results * tile / GROUPS).max(1).next_power_of_two().clamp(least.min(BLOCK), BLOCK);
        Sizes { threads, per_sub, per_group, ahead, tile }
    }

    /// The call that rotates results back which end in `value`, and others that wait for it; none if there are none.
    fn rows_call(&mut self, value: Value) -> Option<Vec<Call>> {
        if self.turned.raws.is_empty() || !self.is_made(value, true) {
            return None;
        }
        let mut program = Program::default();
        self.program(value, true, &mut program)?;
        let &raw = program.reads.first()?;
        let buffers: usize = self.turned.waiting.iter().map(|(_, p)| p.operands.len() + 1).sum();
        let room = buffers + 2 * program.operands.len() < MOST_BUFFERS;
        self.turned.waiting.push((value, program));
        if room && self.can_wait(value, raw) {
            return Some(vec![]);
        }
        let all = std::mem::take(&mut self.turned.waiting);
        let programs: Vec<&[Step]> = all.iter().map(|(_, program)| &program.steps[..]).collect();
        let shader = rotated::rows(&programs);
        let (mut slots, mut words, mut blocks) = (vec![], vec![], 0);
        for (value, program) in &all {
            slots.extend(self.operands(program));
            slots.push(self.slot(*value));
            words.push(Word::Int(self.value(*value).width as u32));
            words.extend(&program.words);
            blocks += self.value(*value).width / BLOCK;
        }
        let grid = [Dim::Fixed(blocks as u32), Dim::Rows(1, 1), Dim::Fixed(1)];
        Some(vec![call(shader, slots, words, grid)])
    }

    /// Whether a result may be rotated with the last one of its product's call: nobody reads it before, and that one will be.
    fn can_wait(&self, value: Value, raw: Raw) -> bool {
        let end = self.end_of(raw.last);
        end > value && !self.turned.singles.contains_key(&end) && self.readers_after(value, end)
    }

    /// Whether all nodes that read `value` come after `end`, those aside whose work attention does.
    fn readers_after(&self, value: Value, end: Value) -> bool {
        self.users(value).into_iter().all(|user| {
            let Some(user) = user.map(|user| Value(user as u32)) else { return true };
            let later = match self.value(user).op {
                Op::Rope(_) => self.turned_by(user).is_some(),
                Op::RmsNorm { .. } => self.normed_later(user),
                _ => false,
            };
            user > end || (later && self.readers_after(user, end))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::{adapters::Caps, build::Options, common::tiles::layers, compile::tape, tape::Entry};
    use nibble_backend::{Activations, KvType, Limits};
    use nibble_testkit::ops;

    #[test]
    fn a_token_is_six_calls_a_layer() {
        let caps = Caps::of_a_server();
        let limits = Limits {
            kv: KvType::F16,
            activations: Activations::Auto,
            check_finite: false,
            ..ops::limits(512)
        };
        let calls = |count: usize, strict: bool, normed: bool| -> usize {
            let options = Options { strict, ..Options::new(&caps, &limits) };
            let tape = tape(&layers(count, 256, normed), options, "a device").unwrap();
            let first = |entry: &Entry| entry.variants.first().map_or(0, |v| v.calls.len());
            tape.entries.iter().map(first).sum()
        };
        let layer = |strict, normed| calls(3, strict, normed) - calls(2, strict, normed);
        // Queries, keys and values; these rotated back; attention, and three products.
        assert_eq!(layer(false, false), 6);
        // Norms behind products need all of a row.
        assert_eq!(layer(false, true), 10);
        // Sums that do not depend on the number of rows: transforms have calls of their own.
        assert_eq!(layer(true, false), 25);
    }
}
