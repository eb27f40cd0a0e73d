//! Products of many rows.

use super::{experts::Way, products::Group};
use crate::{
    build::{Builder, End, Held, call, ints},
    form::Form,
    kernels::{chain::Link, gemm, gemv::Choice},
    pack::halves,
    shader::Shader,
    tape::{Call, Dim, Slot, Word},
    tune,
};
use nibble_graph::Value;

impl Builder<'_> {
    /// Whether the kernels of a group for many rows are not known to be wrong.
    pub(super) fn multiplies(&self, group: &Group, form: &Form, choice: Choice, way: Way) -> bool {
        links(group).iter().all(|links| !self.is_wrong(&shader(form, links, choice, way)))
    }

    /// Takes the fastest right way for the most rows, if it is known; if it is to be found out, its key and the ways to try, the
    /// usual one first. `first` is the matrix, `rows` the most rows.
    pub(super) fn many(
        &self,
        group: &Group,
        form: &Form,
        (first, rows): (usize, usize),
        ways: &mut [(usize, Way)],
    ) -> Option<(String, Vec<Way>)> {
        let (_, usual) = ways.last_mut()?;
        let matrix = &self.tape.matrices[first];
        let gated = if group.gate.is_some() { " gated" } else { "" };
        let (n, k) = (matrix.parts[0].len(), matrix.row_len);
        let rows = rows.next_power_of_two();
        let key = format!("{} {} by {rows} rows, {n}x{k}{gated}", form.describe(), tune::MANY);
        let others = match *usual {
            Way::Matrices(_) => self.other_tiles().into_iter().map(Way::Matrices).collect(),
            Way::Registers(height) => vec![Way::Registers(height / 2)],
            Way::Rows => return None,
        };
        let is_right = |way: &Way| way != usual && self.multiplies(group, form, Choice::All, *way);
        let others: Vec<Way> = others.into_iter().filter(is_right).collect();
        if let Some(size) = self.options.tuned.get(&key) {
            *usual = others.into_iter().find(|way| way.size() == *size).unwrap_or(*usual);
            return None;
        }
        let all = [*usual].into_iter().chain(others).collect::<Vec<_>>();
        (self.options.tune && all.len() > 1 && !self.tape.tunes(&key)).then_some((key, all))
    }

    /// Products of many rows: tile by tile, a gate in two calls with room `between` them.
    pub(super) fn gemm_calls(
        &self,
        group: &Group,
        matrices: [Option<usize>; 2],
        (input, k, between): (Value, usize, Option<Slot>),
        form: &Form,
        (choice, way): (Choice, Way),
        experts: Option<&Experts>,
    ) -> Vec<Call> {
        let mut jobs: Vec<(usize, Vec<End>)> = vec![];
        match (group.gate, matrices) {
            (Some((_, f)), [Some(first), Some(second)]) => {
                let (links, operands, y, width) = &group.ends[0];
                let gate = between.expect("a gate has room between its products");
                jobs.push((first, vec![(vec![], vec![], gate, *width)]));
                let links = [Link::GatedBy(f)].into_iter().chain(links.iter().cloned()).collect();
                let operands = [gate].into_iter().chain(operands.iter().copied()).collect();
                jobs.push((second, vec![(links, operands, *y, *width)]));
            }
            (_, [Some(first), _]) => jobs.push((first, group.ends.clone())),
            _ => unreachable!("a product has a matrix"),
        }
        let parts = match choice {
            Choice::Experts { used, own: true } => used,
            _ => 1,
        };
        let mut calls = vec![];
        for (index, ends) in jobs {
            let links: Vec<Vec<Link>> = ends.iter().map(|e| e.0.clone()).collect();
            let shader = shader(form, &links, choice, way);
            let [height, width] = way.size();
            let matrix = &self.tape.matrices[index];
            for (part, range) in matrix.parts.iter().enumerate() {
                let mut slots = match way {
                    Way::Matrices(_) => self.held[&(input, parts, Held::Halves)].to_vec(),
                    _ => vec![self.slot(input)],
                };
                slots.extend(&matrix.planes[part]);
                let mut words = ints([range.len(), range.start, halves(k), k]);
                words.push(Word::Factor(index, part));
                let (mut results, mut down) = (range.len(), Dim::Rows(1, height as u32));
                if let (Some(experts), Choice::Experts { used, .. }) = (experts, choice) {
                    slots.extend(experts.order);
                    words.push(Word::Int(experts.each as u32));
                    (results, down) = (experts.each, Dim::Tiles { used, experts: experts.count, height });
                }
                for (_, operands, y, width) in &ends {
                    slots.push(*y);
                    slots.extend(operands);
                    words.push(Word::Int(*width as u32));
                }
                let grid = [Dim::Fixed(results.div_ceil(width) as u32), down, Dim::Fixed(1)];
                calls.push(call(shader.clone(), slots, words, grid));
            }
        }
        calls
    }
}

/// What products of experts in tiles need beside their matrices.
pub(super) struct Experts {
    /// Experts.
    pub(super) count: usize,
    /// Rows of an expert's matrix.
    pub(super) each: usize,
    /// Tiles, order.
    pub(super) order: [Slot; 2],
}

/// A kernel for many rows.
fn shader(form: &Form, links: &[Vec<Link>], choice: Choice, way: Way) -> Shader {
    match way {
        Way::Matrices(tiles) => gemm::cooperative(form, links, choice, &tiles),
        Way::Registers(height) => gemm::registers(form, links, choice, height / 16),
        Way::Rows => unreachable!("tiles are asked for"),
    }
}

/// What follows the products of each call of a group: a gate is two calls.
fn links(group: &Group) -> Vec<Vec<Vec<Link>>> {
    let all = group.ends.iter().map(|end| end.0.clone());
    match group.gate {
        Some((_, f)) => {
            let behind = all.map(|links| [Link::GatedBy(f)].into_iter().chain(links).collect());
            vec![vec![vec![]], behind.collect()]
        }
        None => vec![all.collect()],
    }
}
