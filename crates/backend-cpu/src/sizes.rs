//! How much a plan reserves, computed before anything is.

use crate::{
    attention::{Shape, Tile},
    experts::Assignment,
    gated_delta,
    kernels::{Activations, Isa, PANEL_ROWS, PANELS_FROM, Scratch},
    kv::KvLayout,
    layout::place,
    program::{Buf, ByForm, Form, Matrix, Program, Task},
    strips::{Strips, strips_len},
};
use nibble_backend::{Error, Limits, Memory};
use nibble_graph::{Graph, Rows};
use std::collections::HashMap;

/// The most numbers in any one buffer: what is more fits no machine.
const MOST: usize = 1 << 46;

/// Everything that a plan reserves.
#[derive(Clone, Debug)]
pub struct Sizes {
    /// Where each buffer starts in the arena.
    pub starts: Vec<usize>,
    /// Where the table of angles of each rope starts.
    pub tables: Vec<usize>,
    /// Where the scratch of the threads starts.
    pub scratch: usize,
    /// Numbers of scratch for each thread.
    pub scratch_len: usize,
    /// Where the results of parts of the context start.
    pub parts: usize,
    /// Their length.
    pub parts_len: usize,
    /// Numbers in the arena.
    pub arena: usize,
    /// The shape to make the inputs of products with, by form: rows, numbers in a row.
    pub inputs: ByForm<(usize, usize)>,
    /// The longest row of a matrix.
    pub row_len: usize,
    /// The layout of pages.
    pub kv: KvLayout,
    /// Bytes of the bank.
    pub bank: usize,
    /// Where each layer's state starts in a slot.
    pub states: Vec<usize>,
    /// Numbers in a slot.
    pub slot: usize,
    /// Numbers of the assignment of rows to experts.
    pub assignment: usize,
    /// What all of it comes to.
    pub memory: Memory,
}

impl Sizes {
    /// The sizes of a program.
    ///
    /// # Errors
    /// [`Error::Memory`] if they are beyond any machine.
    pub fn new(
        graph: &Graph,
        program: &Program,
        limits: &Limits,
        (isa, threads): (Isa, usize),
    ) -> Result<Self, Error> {
        // A step counts in 32 bits; with that, nothing below leaves 64.
        let counts = [
            ("rows", limits.rows),
            ("the context", limits.context),
            ("pages", limits.pages),
            ("recurrent state", limits.state_slots),
        ];
        if let Some((what, _)) = counts.into_iter().find(|&(_, n)| u32::try_from(n).is_err()) {
            return Err(too_much(what));
        }
        let rows = |rows| if rows == Rows::Tokens { limits.rows } else { limits.wanted };
        let numbers = program.bufs.iter().map(|b| {
            let factors = [rows(b.rows), b.width, 1 + usize::from(b.pairs)];
            product("values", &factors).map(aligned)
        });
        let (starts, mut arena) = place(&program.bufs, &numbers.collect::<Result<Vec<_>, _>>()?);
        let mut take = |what, factors: &[usize]| {
            let start = arena;
            arena = Some(arena + aligned(product(what, factors)?))
                .filter(|&n| n < MOST)
                .ok_or_else(|| too_much(what))?;
            Ok::<_, Error>(start)
        };
        let table = |t: &nibble_graph::Rope| [limits.rows, t.dims];
        let tables =
            program.tables.iter().map(|t| take("angles", &table(t))).collect::<Result<Vec<_>, _>>()?;
        let scratch_len = aligned(scratch_len(program));
        let parts_len =
            attention_shapes(program).map(|s| s.parts_len(limits.rows, limits.context)).max().unwrap_or(0);
        let scratch = take("scratch", &[threads, scratch_len])?;
        let parts = take("parts of the context", &[parts_len])?;
        let inputs = input_shapes(program, limits)?;
        let row_len = program.matrices.iter().map(|m| m.data.shape().row_len()).max().unwrap_or(0);
        let assignment = assignment_len(program, limits);
        let kv = KvLayout::new(&graph.kv_layers, limits.kv);
        let bank = product("keys and values", &[limits.pages, kv.page_bytes])?;
        let mut slot = 0;
        let states = graph
            .state_layers
            .iter()
            .map(|layer| {
                let start = slot;
                slot += layer.len.next_multiple_of(16);
                start
            })
            .collect();
        let state = product("recurrent state", &[limits.state_slots, slot, 4])?;
        let bytes_of = |form: Form| {
            let (rows, row_len) = inputs[form as usize];
            Activations::bytes(rows, row_len, form.kept(isa))
        };
        let activations = (arena * 4)
            + Form::ALL.map(bytes_of).iter().sum::<usize>()
            + threads * Scratch::bytes(row_len)
            + limits.rows * size_of::<Tile>()
            + assignment * 4;
        let memory = Memory {
            mapped_weights: matrices(program, false),
            weights: matrices(program, true)
                + Strips::bytes(program) as u64
                + program.vectors.iter().map(|v| 4 * v.len() as u64).sum::<u64>(),
            kv: bank as u64,
            state: state as u64,
            activations: activations as u64,
        };
        Ok(Self {
            starts,
            tables,
            scratch,
            scratch_len,
            parts,
            parts_len,
            arena,
            inputs,
            row_len,
            kv,
            bank,
            states,
            slot,
            assignment,
            memory,
        })
    }
}

/// Buffers start at cache lines.
fn aligned(len: usize) -> usize {
    len.next_multiple_of(16)
}

fn product(what: &str, factors: &[usize]) -> Result<usize, Error> {
    let product = factors.iter().try_fold(1usize, |n, &f| n.checked_mul(f)).filter(|&n| n < MOST);
    product.ok_or_else(|| too_much(what))
}

fn too_much(what: &str) -> Error {
    Error::Memory { what: what.into(), needed: u64::MAX, available: MOST as u64 }
}

fn attention_shapes(program: &Program) -> impl Iterator<Item = &Shape> {
    program.tasks.iter().filter_map(|t| match &t.task {
        Task::Attention { shape, .. } => Some(shape),
        _ => None,
    })
}

fn scratch_len(program: &Program) -> usize {
    let needed = program.tasks.iter().map(|t| match &t.task {
        Task::Attention { shape, .. } => {
            let row = shape.keys.key_dim.max(shape.keys.value_dim).next_multiple_of(32);
            shape.scratch_len().max(row)
        }
        Task::GatedDelta { op, .. } => op.key_dim * gated_delta::COLUMNS,
        Task::Route { logits, .. } => 2 * program.bufs[logits.0].width,
        _ => 0,
    });
    needed.max().unwrap_or(0)
}

fn assignment_len(program: &Program, limits: &Limits) -> usize {
    let needed = program.tasks.iter().map(|t| match &t.task {
        Task::ExpertMatmul { used, experts, .. } => Assignment::len(limits.rows * used, *experts),
        _ => 0,
    });
    needed.max().unwrap_or(0)
}

/// A shape for each form in which the inputs of every product fit.
fn input_shapes(program: &Program, limits: &Limits) -> Result<ByForm<(usize, usize)>, Error> {
    let mut most: ByForm<HashMap<usize, usize>> = Default::default();
    let rows_of =
        |buf: Buf| if program.bufs[buf.0].rows == Rows::Tokens { limits.rows } else { limits.wanted };
    for placed in &program.tasks {
        let mut note = |form: Form, rows: usize, row_len: usize| {
            let most = most[form as usize].entry(row_len).or_default();
            let rows = form.rows(rows);
            // Whole panels, where there can be any.
            let rows = if rows < PANELS_FROM { rows } else { rows.next_multiple_of(PANEL_ROWS) };
            *most = (*most).max(rows);
        };
        match &placed.task {
            Task::Fill { x, parts, form } => {
                note(*form, rows_of(*x) * parts, program.bufs[x.0].width / parts);
            }
            Task::RmsNorm { y, fill, .. } => {
                let filled = Form::ALL.into_iter().filter(|&form| fill[form as usize]);
                filled.for_each(|form| note(form, rows_of(*y), program.bufs[y.0].width));
            }
            _ => {}
        }
    }
    let mut shapes = ByForm::default();
    for (form, shape) in Form::ALL.into_iter().zip(&mut shapes) {
        // As one row of chunks of 256, so that any shape with no more chunks fits.
        let unit = if form == Form::Floats { 1 } else { 256 };
        let needed = most[form as usize]
            .iter()
            .map(|(&row_len, &rows)| product("inputs of products", &[rows, row_len.div_ceil(unit), unit]));
        let needed = needed.collect::<Result<Vec<_>, _>>()?.into_iter().max().unwrap_or(0);
        *shape = (needed.div_ceil(unit), unit.min(needed));
    }
    Ok(shapes)
}

/// Bytes of the matrices that are memory of this process, or of those that are read in mapped files.
fn matrices(program: &Program, owned: bool) -> u64 {
    let read = |m: &&Matrix| owned || strips_len(m).is_none();
    let counted = program.matrices.iter().filter(|m| m.data.is_owned() == owned).filter(read);
    counted.map(|m| m.data.byte_len() as u64).sum()
}
