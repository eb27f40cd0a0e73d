//! Attention: keys and values go to the bank, then rows attend to it.

use super::{alone::Buffers, rounding::quantize_call};
use crate::{
    build::{Builder, FEW, Held, call, columns, ints},
    kernels::{
        attention::{self, Runs, tiles},
        kv, kv_blocks,
    },
    pack::halves,
    selfcheck::{Attend, How},
    tape::{Content, Dim, Fit, Variant},
};
use nibble_graph::{Attention, Op, Value};

/// Rows of a sequence from which on tiles of rows are worth it.
const DENSE: usize = 16;

impl Builder<'_> {
    /// The attention that turns the result of a rotation itself: that of queries and keys alike.
    pub(super) fn turned_by(&self, value: Value) -> Option<usize> {
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

    /// Epsilons of the norms of the heads of queries and of keys, if a node is an attention that applies these itself too.
    fn head_norms(&self, attention: usize) -> Option<[f32; 2]> {
        let node = &self.graph.nodes[attention];
        let Op::Attention(a) = &node.op else { return None };
        let dim = self.graph.kv_layers[a.cache].key_dim;
        let eps = |i: usize| {
            let turned = node.inputs[i];
            let norm = self.turned_by(turned).and_then(|_| self.value(turned).inputs.first().copied())?;
            let alone = self.only_user(norm) == Some(turned.0 as usize);
            match self.value(norm).op {
                Op::RmsNorm { eps } if alone => {
                    let weight = self.graph.weight(self.value(norm).weights[0]);
                    (weight.data.shape().elements() == dim).then_some(eps)
                }
                _ => None,
            }
        };
        let [q, k] = [eps(0), eps(1)];
        self.rounds().then_some([q?, k?])
    }

    /// Whether a value is a norm of heads that attention applies.
    pub(super) fn normed_later(&self, value: Value) -> bool {
        let turned = self.only_user(value).map(|user| Value(user as u32));
        let attention = turned.filter(|&v| matches!(self.value(v).op, Op::Rope(_)));
        attention.and_then(|v| self.turned_by(v)).is_some_and(|user| self.head_norms(user).is_some())
    }

    pub(super) fn attention(&mut self, value: Value, a: &Attention) {
        let layer = self.graph.kv_layers[a.cache];
        let limits = self.options.limits;
        let bank = kv::Bank::new(layer, limits.kv);
        let inputs = self.value(value).inputs.clone();
        let turn = match &self.value(inputs[0]).op {
            Op::Rope(rope) if self.turned_by(inputs[0]).is_some() => Some(rope),
            _ => None,
        };
        let norms = turn.and_then(|_| self.head_norms(value.0 as usize));
        let source = |b: &Self, i: usize| match turn {
            Some(_) if i < 2 => {
                let before = b.value(inputs[i]).inputs[0];
                b.slot(if norms.is_some() { b.value(before).inputs[0] } else { before })
            }
            _ => b.slot(inputs[i]),
        };
        let [mut q, k, v] = [0, 1, 2].map(|i| source(self, i));
        let (rows, sequences, pages) = (self.step("rows"), self.step("sequences"), self.step("pages"));
        let [keys, values] = self.bank(a.cache, bank.page_words());
        let [key, val] = bank.row_words();
        let mut words = (key + val) as usize * layer.kv_heads;
        let mut slots = vec![rows, sequences, pages, k, v, keys, values];
        let turn = turn.map(|rope| {
            let (table, by_row) = self.turns(rope);
            slots.push(table);
            if norms.is_some() {
                for &turned in &inputs[..2] {
                    let norm = self.value(turned).inputs[0];
                    slots.push(self.vector(self.value(norm).weights[0]));
                }
            }
            let norms = norms.map(|eps| eps.map(kv::HeadEps::from));
            kv::Turn { layout: rope.layout, dims: rope.dims, by_row, heads: a.heads, norms }
        });
        let before: Vec<_> = slots.iter().copied().chain([q]).collect();
        let mut written = 2 * layer.kv_heads;
        if turn.is_some() || bank.rotates() {
            let width = a.heads * layer.key_dim;
            let turned = self.scratch(self.value(value).rows, width * 4);
            slots.extend([q, turned]);
            (q, words, written) = (turned, words + width, written + a.heads);
        }
        let write = if bank.is_blocks() {
            let grid = [Dim::Fixed(written as u32), Dim::Rows(1, 1), Dim::Fixed(1)];
            call(kv_blocks::write(&bank, turn.as_ref(), a.heads), slots, vec![], grid)
        } else {
            let mut grid = columns(words, 64);
            if norms.is_some() {
                grid[0] = Dim::Fixed(written as u32);
            }
            call(kv::write(&bank, turn.as_ref()), slots, vec![], grid)
        };
        let y = self.fresh(value);
        let heads = attention::Heads::new(a, &bank);
        let groups = (layer.kv_heads * heads.groups) as u32;
        let runs = attention::runs(limits.context);
        let few = limits.rows.min(FEW);
        let [sums, stats] = [bank.layer.value_dim * 4, 8]
            .map(|bytes| self.add_slot(Content::Value, (few * a.heads * bytes).saturating_mul(runs)));
        let sinks = self.value(value).weights.first().map(|&w| self.vector(w));
        let strict = self.options.strict;
        // The last kernel of a variant stands for all of them, and one layer for all that are alike.
        let twin = |how, codes| Attend {
            op: Attention { cache: 0, ..a.clone() },
            bank,
            turn,
            how,
            codes,
            in_turn: strict,
            sinks: sinks.is_some(),
        };
        let attend = |how: Runs| {
            let (ends, z) = match how {
                Runs::Apart => (vec![sums, stats], runs as u32),
                _ => ([y].into_iter().chain(sinks).collect(), 1),
            };
            let slots = [rows, sequences, pages, q, keys, values].into_iter().chain(ends).collect();
            let grid = [Dim::Fixed(groups), Dim::Rows(1, 1), Dim::Fixed(z)];
            let mut shader = attention::attend(a, &bank, how, sinks.is_some());
            if how != Runs::Apart {
                shader = shader.with(twin(How::Runs(how), false));
            }
            call(shader, slots, ints([runs]), grid)
        };
        let join = |codes| {
            let shader = attention::join(a, &bank, codes, strict, sinks.is_some());
            shader.with(twin(How::Runs(Runs::Apart), codes))
        };
        // For few rows the result is rounded at once if products alone read it.
        let codes = layer.value_dim.is_multiple_of(32) && self.readers(value) == [true, false];
        let codes = codes && self.rounds() && !self.is_wrong(&join(true));
        let apart = !self.is_wrong(&join(codes));
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
            join(codes),
            [rows, sums, stats].into_iter().chain(ends.iter().copied()).chain(sinks).collect(),
            ints([runs]),
            [Dim::Fixed(a.heads as u32), Dim::Rows(1, 1), Dim::Fixed(1)],
        );
        let mut whole = attend(if strict { Runs::InTurn } else { Runs::One });
        if self.is_wrong(&whole.shader) {
            whole = attend(Runs::InTurn);
        }
        let mut many = vec![write.clone(), whole];
        if bank.rotates() {
            let grid = [Dim::Fixed(a.heads as u32), Dim::Rows(1, 1), Dim::Fixed(1)];
            many.push(call(kv_blocks::unrotate(a.heads, layer.value_dim), vec![y], vec![], grid));
        }
        if let (true, Some(&held)) = (self.options.strict, self.held.get(&(value, 1, Held::CodesFew))) {
            many.push(quantize_call(y, held, self.value(value).width, 1));
        }
        let buffers = Buffers { before: &before, runs: [sums, stats], ends: &ends, sinks };
        let mut variants = self.alone(&twin(How::Alone { joins: true }, codes), &buffers);
        if apart {
            let calls = vec![write.clone(), attend(Runs::Apart), join];
            variants.push(Variant { fit: Fit::rows(few), calls });
        }
        if let Some((_, tiles)) = self.coop(1).pop()
            && let Some(each) = tiles::rows(&bank, &tiles)
        {
            let slots = [rows, sequences, pages, q, keys, values, y].into_iter().chain(sinks).collect();
            let grid = [Dim::Fixed(a.heads as u32), Dim::Rows(1, each as u32), Dim::Fixed(1)];
            let shader = tiles::attend(a, &bank, &tiles, sinks.is_some());
            let shader = shader.with(twin(How::Tiles(tiles), false));
            if !self.is_wrong(&shader) {
                let calls = vec![write, call(shader, slots, vec![], grid)];
                variants.push(Variant { fit: Fit { each: DENSE, ..Fit::ALL }, calls });
            }
        }
        variants.push(Variant { fit: Fit::ALL, calls: many });
        self.push_variants(value, Some(y), variants);
    }
}
