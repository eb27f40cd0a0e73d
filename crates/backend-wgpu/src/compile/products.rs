//! Products of one input: what becomes one call, and its kernels by rows.

use super::{experts::Way, few::Few, tiles::Experts};
use crate::{
    build::{Builder, End, FEW, Held},
    form::Form,
    kernels::{gemm, gemv::Choice},
    tape::{Fit, Variant},
    tune::Tunable,
};
use nibble_backend::Error;
use nibble_graph::{Activation, Op, Value, WeightId};

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
        let k = shape.row_len();
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
        coop.retain(|(_, tiles)| self.multiplies(&group, form, choice, Way::Matrices(*tiles)));
        if let Some((most, _)) = coop.last_mut() {
            *most = usize::MAX;
        }
        // For many rows.
        let mut ways: Vec<(usize, Way)> = match choice {
            _ if !more || (strict && choice == Choice::All) => vec![],
            Choice::Experts { .. } | Choice::Sum { .. } => self.ways(&group, form, choice, shape.dims()[0]),
            Choice::All if !coop.is_empty() => {
                coop.into_iter().map(|(most, tiles)| (most, Way::Matrices(tiles))).collect()
            }
            Choice::All => {
                let tiles = Way::Registers(gemm::REGISTER_TILE);
                let right = self.multiplies(&group, form, choice, tiles);
                vec![(usize::MAX, if right { tiles } else { Way::Rows })]
            }
        };
        let many = match choice {
            Choice::All => self.many(&group, form, (first, self.most_rows(node.rows)), &mut ways),
            _ => None,
        };
        // The input in the forms that the kernels below read.
        let mut wanted = vec![];
        if codes {
            wanted.push(Held::CodesFew);
            if ways.iter().any(|(_, way)| *way == Way::Rows) {
                wanted.push(Held::CodesMany);
            }
        }
        if ways.iter().any(|(_, way)| matches!(way, Way::Matrices(_))) {
            wanted.push(Held::Halves);
        }
        self.hold(value, input, parts, k, &wanted);

        let experts = match choice {
            Choice::All => None,
            _ => Some((self.slot(node.inputs[1]), shape.dims()[1])),
        };
        let few = Few {
            form,
            first,
            second: second.zip(group.gate.map(|(_, f)| f)),
            input: (input, parts, k),
            codes,
            choice,
            experts,
            bias: None,
            choosing: node.inputs.get(1).and_then(|route| self.choosing.remove(route)),
            ends: &group.ends,
            round: self.rounding(last, &group, choice),
            late: self.scaled_late.get(&input).copied().filter(|_| codes || k.is_multiple_of(16)),
        };
        let mut variants = vec![];
        if choice == Choice::All {
            for tile in tiles {
                few.tunable(self, tile);
                variants.push(Variant {
                    fit: Fit::rows(tile),
                    calls: few.calls(self, tile, Held::CodesFew, None),
                });
            }
            if let (true, Some(variant)) = (strict, variants.last_mut()) {
                variant.fit = Fit::ALL;
            }
        } else {
            let sum = self.sum_behind(last, first);
            let summed = sum.as_ref().map(|sum| Few {
                choice: sum.choice,
                bias: sum.bias,
                ends: std::slice::from_ref(&sum.end),
                round: sum.round,
                ..few
            });
            let few = summed.as_ref().unwrap_or(&few);
            few.tunable(self, 1);
            variants.push(Variant { fit: Fit::rows(FEW), calls: few.calls(self, 1, Held::CodesFew, None) });
        }
        let between = match group.gate {
            Some(_) if ways.iter().any(|(_, way)| *way != Way::Rows) => {
                let used = if let Choice::Experts { used, .. } = choice { used } else { 1 };
                Some(self.scratch(node.rows, used * group.ends[0].3 * 4))
            }
            _ => None,
        };
        let experts = node.inputs.get(1).and_then(|route| self.orders.get(route)).map(|&order| Experts {
            count: shape.dims()[0],
            each: shape.dims()[1],
            order,
        });
        if let Some((key, ways)) = many {
            let planes = self.tape.matrices[first].planes[0].iter();
            let bytes = planes.map(|plane| self.tape.slots[plane.0].bytes).sum();
            let call = |way: Way| {
                let (input, by) = ((input, k, between), (choice, way));
                let calls = self.gemm_calls(&group, [Some(first), second], input, form, by, None);
                (way.size(), calls.into_iter().next().expect("a call for each part"))
            };
            let ways = ways.into_iter().map(call).collect();
            self.tape.tunables.push(Tunable { key, rows: self.most_rows(node.rows), bytes, ways });
        }
        for (most, way) in ways {
            let calls = match way {
                // Tiles that are not to be trusted: rows go through the kernels for few.
                Way::Rows => {
                    let tile = if choice == Choice::All { FEW } else { 1 };
                    few.calls(self, tile, Held::CodesMany, None)
                }
                way => {
                    let input = (input, k, between);
                    let by = (choice, way);
                    self.gemm_calls(&group, [Some(first), second], input, form, by, experts.as_ref())
                }
            };
            variants.push(Variant { fit: Fit::rows(most), calls });
        }
        let result = group.ends.last().map(|e| e.2);
        self.push_single(last, result, variants);
        Ok(())
    }
}
