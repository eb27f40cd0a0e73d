//! Products of many rows.

use super::products::{End, Group};
use crate::{
    build::{Builder, Held, call, ints},
    form::Form,
    kernels::{
        chain::Link,
        gemm::{self, Tiles},
    },
    pack::halves,
    shader::Shader,
    tape::{Call, Dim, Slot, Word},
};
use nibble_graph::Value;

impl Builder<'_> {
    /// Whether the kernels of a group for many rows, by matrices or in registers, are not known to be wrong.
    pub(super) fn multiplies(&self, group: &Group, form: &Form, tiles: Option<&Tiles>) -> bool {
        links(group).iter().all(|links| !self.is_wrong(&shader(form, links, tiles)))
    }

    /// Products of many rows: tile by tile, a gate in two calls with room `between` them.
    pub(super) fn gemm_calls(
        &self,
        group: &Group,
        matrices: [Option<usize>; 2],
        (input, k, between): (Value, usize, Option<Slot>),
        form: &Form,
        tiles: Option<Tiles>,
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
        let mut calls = vec![];
        for (index, ends) in jobs {
            let links: Vec<Vec<Link>> = ends.iter().map(|e| e.0.clone()).collect();
            let shader = shader(form, &links, tiles.as_ref());
            let size = tiles.map_or([gemm::REGISTER_TILE; 2], |tiles| tiles.size());
            let matrix = &self.tape.matrices[index];
            for (part, range) in matrix.parts.iter().enumerate() {
                let mut slots = match &tiles {
                    Some(_) => self.held[&(input, 1, Held::Halves)].to_vec(),
                    None => vec![self.slot(input)],
                };
                slots.extend(&matrix.planes[part]);
                let mut words = ints([range.len(), range.start, halves(k), k]);
                words.push(Word::Factor(index, part));
                for (_, operands, y, width) in &ends {
                    slots.push(*y);
                    slots.extend(operands);
                    words.push(Word::Int(*width as u32));
                }
                let x = range.len().div_ceil(size[1]) as u32;
                calls.push(call(
                    shader.clone(),
                    slots,
                    words,
                    [Dim::Fixed(x), Dim::Rows(1, size[0] as u32), Dim::Fixed(1)],
                ));
            }
        }
        calls
    }
}

/// A kernel for many rows.
fn shader(form: &Form, links: &[Vec<Link>], tiles: Option<&Tiles>) -> Shader {
    match tiles {
        Some(tiles) => gemm::cooperative(form, links, tiles),
        None => gemm::registers(form, links),
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
