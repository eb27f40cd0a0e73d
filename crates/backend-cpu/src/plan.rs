//! A compiled graph with its memory: runs steps, is read, moves pages and states.

use crate::{
    attention::Tile,
    buffer::Buffer,
    cpu::Cpu,
    exec::Exec,
    kernels::{Activations, Isa, Scratch},
    parts::Parts,
    per_thread::PerThread,
    pool::Pool,
    program::{ByForm, Form, Program},
    sizes::Sizes,
    strips::Strips,
    trace::Trace,
};
use nibble_backend::{Error, Limits, Memory, Plan, Step, Tracer};
use nibble_graph::Graph;
use std::sync::Arc;

/// A plan of the CPU backend.
pub struct CpuPlan {
    pub(crate) isa: Isa,
    pub(crate) pool: Arc<Pool>,
    pub(crate) limits: Limits,
    pub(crate) program: Program,
    pub(crate) strips: Strips,
    pub(crate) sizes: Sizes,
    pub(crate) vocab: usize,
    pub(crate) recurrent: bool,
    pub(crate) arena: Buffer,
    pub(crate) bank: Buffer,
    pub(crate) states: Buffer,
    pub(crate) inputs: ByForm<Activations>,
    pub(crate) scratch: PerThread<Scratch>,
    pub(crate) tiles: Box<[Tile]>,
    pub(crate) assignment: Box<[u32]>,
    /// Rows of the last step: of tokens, of wanted ones.
    pub(crate) rows: [usize; 2],
    pub(crate) trace: Option<Trace>,
}

impl CpuPlan {
    /// Reserves what `sizes` says.
    pub(crate) fn new(
        cpu: &Cpu,
        graph: &Graph,
        limits: &Limits,
        program: Program,
        sizes: Sizes,
    ) -> Result<Self, Error> {
        let huge = cpu.options().huge_pages;
        Ok(Self {
            isa: cpu.isa(),
            pool: Arc::clone(cpu.pool()),
            limits: limits.clone(),
            vocab: graph.vocab(),
            recurrent: graph.is_recurrent(),
            bank: Buffer::new("the bank of keys and values", sizes.bank, huge)?,
            states: Buffer::new("recurrent state", sizes.memory.state as usize, huge)?,
            arena: Buffer::new("activations", sizes.arena * 4, huge)?,
            inputs: Form::ALL.map(|form| {
                let (rows, row_len) = sizes.inputs[form as usize];
                Activations::new(rows, row_len, form.kept(cpu.isa()))
            }),
            scratch: PerThread::new(cpu.pool().threads(), || Scratch::new(sizes.row_len)),
            tiles: vec![Tile::default(); limits.rows].into(),
            assignment: vec![0; sizes.assignment].into(),
            rows: [0; 2],
            trace: None,
            strips: Strips::new(&program, cpu.pool(), huge)?,
            program,
            sizes,
        })
    }

    /// All numbers of the arena.
    fn numbers(&mut self) -> &mut [f32] {
        floats(&mut self.arena)
    }
}

/// A buffer's numbers.
fn floats(buffer: &mut Buffer) -> &mut [f32] {
    // SAFETY: the buffer is aligned to pages, initialized, and borrowed exclusively; any bits are an f32.
    unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), buffer.len() / 4) }
}

impl Plan for CpuPlan {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Memory {
        self.sizes.memory
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), Error> {
        step.check(&self.limits, self.vocab, self.recurrent)?;
        self.rows = [step.tokens.len(), step.wanted.len()];
        if step.tokens.is_empty() {
            return Ok(());
        }
        let pool = Arc::clone(&self.pool);
        let exec = Exec {
            isa: self.isa,
            step,
            program: &self.program,
            strips: &self.strips,
            sizes: &self.sizes,
            rows: self.rows,
            team: pool.team(self.trace.as_ref()),
            arena: Parts::new(floats(&mut self.arena)),
            bank: Parts::new(self.bank.bytes_mut()),
            states: Parts::new(floats(&mut self.states)),
            inputs: &mut self.inputs,
            scratch: &self.scratch,
            tiles: &mut self.tiles,
            assignment: &mut self.assignment,
        };
        exec.run()
    }

    fn give(&mut self, input: usize, numbers: &[f32]) -> Result<(), Error> {
        let Some(&buf) = self.program.given.get(input) else {
            return refuse("input", format!("less than {}", self.program.given.len()), input);
        };
        let (start, width) = (self.sizes.starts[buf.0], self.program.bufs[buf.0].width);
        nibble_backend::check_given(numbers, width, &self.limits)?;
        self.numbers()[start..start + numbers.len()].copy_from_slice(numbers);
        Ok(())
    }

    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
        let Some(&buf) = self.program.outputs.get(output) else {
            return refuse("output", format!("less than {}", self.program.outputs.len()), output);
        };
        let info = self.program.bufs[buf.0];
        let rows = self.rows[info.rows as usize];
        if row >= rows {
            return refuse("row of an output", format!("less than {rows}"), row);
        }
        if into.len() != info.width {
            return refuse("length of a row", info.width.to_string(), into.len());
        }
        let start = self.sizes.starts[buf.0] + row * info.width;
        into.copy_from_slice(&self.numbers()[start..start + info.width]);
        Ok(())
    }

    fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        self.trace = Some(Trace::new(tracer, self.pool.threads()));
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error> {
        let len = self.sizes.kv.page_bytes;
        let [from, to] = below("page", self.limits.pages, [from, to])?;
        self.bank.bytes_mut().copy_within(from * len..(from + 1) * len, to * len);
        Ok(())
    }

    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error> {
        let len = self.sizes.slot;
        let [from, to] = below("state slot", self.limits.state_slots, [from, to])?;
        floats(&mut self.states).copy_within(from * len..(from + 1) * len, to * len);
        Ok(())
    }

    fn clear_state(&mut self, slot: u32) -> Result<(), Error> {
        let len = self.sizes.slot;
        let [slot] = below("state slot", self.limits.state_slots, [slot])?;
        floats(&mut self.states)[slot * len..(slot + 1) * len].fill(0.0);
        Ok(())
    }
}

fn below<const N: usize>(what: &'static str, limit: usize, numbers: [u32; N]) -> Result<[usize; N], Error> {
    match numbers.iter().find(|&&n| n as usize >= limit) {
        Some(&n) => refuse(what, format!("less than {limit}"), n),
        None => Ok(numbers.map(|n| n as usize)),
    }
}

fn refuse<T>(what: &'static str, expected: String, found: impl ToString) -> Result<T, Error> {
    Err(Error::Step { what, expected, found: found.to_string() })
}
