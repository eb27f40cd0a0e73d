//! Inputs of products in the forms that kernels read: made by calls of their own, or by the product before.

use super::products::{BLOCK, Group};
use crate::{
    build::{Builder, FEW, Held, Late, Rounding, call, ints},
    kernels::{gemm, gemv::Choice, quantize},
    pack::halves,
    tape::{Call, Content, Dim, Fit, Slot, Variant},
};
use nibble_graph::{Op, Value};

impl Builder<'_> {
    /// Where a product's result goes rounded, if products read it, or a norm that only products read.
    pub(super) fn rounding(&mut self, value: Value, group: &Group, choice: Choice) -> Option<Rounding> {
        let [(_, _, _, width)] = group.ends[..] else { return None };
        if !self.options.fuse || !self.rounds() || !width.is_multiple_of(BLOCK) {
            return None;
        }
        let node = self.value(value);
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
        self.round_behind(value, width)
    }

    /// Where a result of that width goes rounded, if products alone read it, or a norm that only products read.
    pub(super) fn round_behind(&mut self, value: Value, width: usize) -> Option<Rounding> {
        if !self.options.fuse || !self.rounds() || !width.is_multiple_of(BLOCK) {
            return None;
        }
        let node = self.value(value);
        let most = self.few_rows(node.rows);
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
        if !whole || !plain || !self.norms_late(norm, width) {
            return None;
        }
        let mut round = self.round_into((norm, 1, Held::CodesFew), most, width);
        let squares = self.add_slot(Content::Value, most * halves(width) * 4);
        let by = self.vector(by);
        round.norm = Some([by, squares]);
        self.scaled_late.insert(norm, Late { squares, eps, input: [self.slot(value), by] });
        Some(round)
    }

    /// Whether products alone read a norm of `width`, some of them codes, and all of them can apply it themselves.
    fn norms_late(&mut self, norm: Value, width: usize) -> bool {
        let mut codes = false;
        for user in self.users(norm) {
            let Some(node) = user.map(|user| &self.graph.nodes[user]) else { return false };
            if !self.is_factor(node, norm) {
                return false;
            }
            let by_codes = self.by_codes(node.weights[0]);
            if !by_codes && !width.is_multiple_of(16) {
                return false;
            }
            codes |= by_codes;
        }
        codes
    }

    fn round_into(&mut self, key: (Value, usize, Held), rows: usize, width: usize) -> Rounding {
        let held = [16, 8].map(|bytes| self.add_slot(Content::Value, rows * halves(width) * bytes));
        self.held.insert(key, held);
        Rounding { held, norm: None }
    }

    /// Makes `input`, or its `parts` parts of `k` numbers, the input of products in these forms, unless it is already.
    pub(super) fn hold(&mut self, value: Value, input: Value, parts: usize, k: usize, forms: &[Held]) {
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
        let variants =
            vec![Variant { fit: Fit::rows(FEW), calls: few }, Variant { fit: Fit::ALL, calls: many }];
        debug_assert_eq!(self.value(value).rows, rows);
        self.push_variants(value, None, variants);
    }
}

/// Rounds `x`, or its `parts` parts of `k` numbers.
pub(super) fn quantize_call(x: Slot, codes: [Slot; 2], k: usize, parts: usize) -> Call {
    let row_halves = halves(k);
    let grid = [Dim::Fixed(row_halves.div_ceil(64) as u32), Dim::Rows(parts as u32, 1), Dim::Fixed(1)];
    call(quantize::quantize(), vec![x, codes[0], codes[1]], ints([row_halves, k]), grid)
}
