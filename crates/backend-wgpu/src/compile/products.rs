//! Products of one input: what becomes one call, and its kernels by rows.

use crate::{
    build::{Builder, FEW, Held, call, ints},
    form::Form,
    kernels::{
        chain::Link,
        gemv::{self, Choice, Gemv, Input, Round},
    },
    pack::halves,
    selfcheck::Product,
    tape::{Call, Dim, Slot, Variant, Word},
    tune::{self, Tunable, Way},
};
use nibble_backend::Error;
use nibble_graph::{Activation, Op, Value, WeightId};

/// What follows a product: links and their buffers, the output and its width.
pub(super) type End = (Vec<Link>, Vec<Slot>, Slot, usize);

/// Products of one input that become one call.
pub(super) struct Group {
    weights: Vec<WeightId>,
    /// The second matrix of a gate, with the gate.
    pub(super) gate: Option<(WeightId, Activation)>,
    /// One for each product.
    pub(super) ends: Vec<End>,
}

/// Results that a workgroup rounds together.
pub(super) const BLOCK: usize = 32;

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

/// Rows that a kernel takes at once and its sizes, the fastest first: what is tried until one is right.
fn candidates(tile: usize, gate: bool, round: bool) -> Vec<(usize, usize, usize)> {
    let sized = |tile| {
        let (per_sub, ahead) = sizes(tile, gate, round);
        (tile, per_sub, ahead)
    };
    vec![sized(tile), (tile, 1, 1), sized(1), (1, 1, 1)]
}

impl Builder<'_> {
    /// All products of the input of `value`, with what follows them.
    pub(super) fn products(&mut self, value: Value) -> Result<(), Error> {
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
        let mut coop = self.coop(self.tape.matrices[first].parts[0].len());
        coop.retain(|(_, tiles)| self.multiplies(&group, form, Some(tiles)));
        if let Some((most, _)) = coop.last_mut() {
            *most = usize::MAX;
        }
        let any = !coop.is_empty() || self.multiplies(&group, form, None);
        let by_matrix = choice == Choice::All && more && !strict && any;
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
        let key = |b: &Self, tile: usize| {
            let (n, fused) = (b.tape.matrices[first].parts[0].len(), [group.gate.is_some(), round.is_some()]);
            let [gate, round] = [" gated", " rounded"].map(|word| word.to_string());
            let words = [gate, round].into_iter().zip(fused).filter(|(_, is)| *is).map(|(word, _)| word);
            let experts = if choice == Choice::All { "" } else { " of experts" };
            format!("{} by {tile} rows, {n}x{k}{experts}{}", form.describe(), words.collect::<String>())
        };
        let gemv_calls = |b: &Self, tile: usize, held: Held, forced: Option<Way>| -> Vec<Call> {
            let links: Vec<Vec<Link>> = group.ends.iter().map(|e| e.0.clone()).collect();
            let few = held == Held::CodesFew;
            let (round, late) = (round.as_ref().filter(|_| few), late.filter(|_| few));
            let lanes = b.options.caps.subgroup;
            let made = |(tile, per_sub, ahead): (usize, usize, usize)| {
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
                (gemv::gemv(&g).with(Product::few(&g, lanes[0] as usize)), g.per_group, tile)
            };
            let right = |sizes| Some(made(sizes)).filter(|made| !b.is_wrong(&made.0));
            let tuned = b.options.tuned.get(&key(b, tile)).copied();
            let best = forced.or(tuned).map(|[per_sub, ahead]| (tile, per_sub, ahead));
            let plainer = candidates(tile, group.gate.is_some(), round.is_some());
            let mut sizes = best.into_iter().chain(plainer);
            let (shader, per_group, tile) = match forced {
                Some(_) => made(sizes.next().expect("a way")),
                None => sizes.find_map(right).unwrap_or_else(|| made((1, 1, 1))),
            };
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
                let grid = [Dim::Fixed(n.div_ceil(per_group) as u32), rows, Dim::Fixed(1)];
                calls.push(call(shader.clone(), slots, words, grid));
            }
            calls
        };
        let own = if choice == Choice::All { &tiles[..] } else { &[1] };
        for &tile in own {
            let key = key(self, tile);
            if !self.options.tune || self.options.tuned.contains_key(&key) || self.tape.tunes(&key) {
                continue;
            }
            let (per_sub, ahead) = sizes(tile, group.gate.is_some(), round.is_some());
            let call = |way| (way, gemv_calls(self, tile, Held::CodesFew, Some(way)).swap_remove(0));
            let ways = tune::ways([per_sub, ahead], tile, group.gate.is_some()).into_iter().map(call);
            let planes = self.tape.matrices[first].planes[0].iter();
            let bytes = planes.map(|plane| self.tape.slots[plane.0].bytes).sum();
            let tunable = Tunable { key, rows: tile, bytes, ways: ways.collect() };
            self.tape.tunables.push(tunable);
        }
        if choice == Choice::All {
            for tile in tiles {
                variants.push(Variant {
                    most: tile,
                    each: 0,
                    calls: gemv_calls(self, tile, Held::CodesFew, None),
                });
            }
            if let (true, Some(variant)) = (strict, variants.last_mut()) {
                variant.most = usize::MAX;
            }
        } else {
            variants.push(Variant { most: FEW, each: 0, calls: gemv_calls(self, 1, Held::CodesFew, None) });
        }
        if more && !by_matrix && !strict && choice == Choice::All {
            // Tiles that are not to be trusted: rows go through the kernels for few.
            variants.push(Variant {
                most: usize::MAX,
                each: 0,
                calls: gemv_calls(self, FEW, Held::CodesMany, None),
            });
        }
        if more && choice != Choice::All {
            variants.push(Variant {
                most: usize::MAX,
                each: 0,
                calls: gemv_calls(self, 1, Held::CodesMany, None),
            });
        }
        if by_matrix {
            let mut choices: Vec<_> = coop.into_iter().map(|(most, tiles)| (most, Some(tiles))).collect();
            if choices.is_empty() {
                choices.push((usize::MAX, None));
            }
            let between = group.gate.map(|_| self.scratch(node.rows, group.ends[0].3 * 4));
            for (most, tiles) in choices {
                let calls = self.gemm_calls(&group, [Some(first), second], (input, k, between), form, tiles);
                variants.push(Variant { most, each: 0, calls });
            }
        }
        let result = group.ends.last().map(|e| e.2);
        self.push_variants(last, result, variants);
        Ok(())
    }
}
