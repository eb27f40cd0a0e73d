//! Opening models, and a driver of plans for several sequences at once.

#![allow(dead_code, reason = "each test uses its part")]

use nibble_backend::{Backend, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_cpu::{Cpu, CpuOptions};
use nibble_model::Model;
use std::path::Path;

/// The model at `path`.
pub fn open(path: &Path) -> Model {
    let checkpoint = nibble_format::open(path, &nibble_quant::Registry::default()).unwrap();
    nibble_model::build(&checkpoint).unwrap()
}

/// The golden model of that name.
pub fn golden_model(name: &str) -> Model {
    open(&nibble_testkit::workspace_root().join("golden/models").join(name))
}

/// A device with so many threads.
pub fn cpu(threads: usize) -> Cpu {
    Cpu::new(CpuOptions { threads: Some(threads), ..CpuOptions::default() })
}

/// Sequences of one plan; sequence `i` uses pages `i, i + count, ...` and slot `i`.
pub struct Batch {
    plan: Box<dyn Plan>,
    width: usize,
    pages: Vec<Vec<u32>>,
    lens: Vec<u32>,
    prompt_lens: Vec<u32>,
}

impl Batch {
    /// Compiles `model` for `sequences` sequences of up to `limits.context` tokens.
    pub fn new(cpu: &Cpu, model: &Model, limits: &Limits, sequences: usize) -> Self {
        let per_sequence = limits.context.div_ceil(PAGE_LEN);
        let limits = Limits {
            sequences,
            pages: per_sequence * sequences,
            state_slots: sequences,
            wanted: limits.rows,
            ..limits.clone()
        };
        let plan = cpu.compile(&model.graph, &limits).unwrap();
        let pages =
            (0..sequences).map(|s| (0..per_sequence).map(|p| (p * sequences + s) as u32).collect()).collect();
        let zeros = vec![0; sequences];
        Self { plan, width: model.config.vocab, pages, lens: zeros.clone(), prompt_lens: zeros }
    }

    /// Starts sequence `s` anew.
    pub fn start(&mut self, s: usize, prompt_len: usize) {
        self.plan.clear_state(s as u32).unwrap();
        (self.lens[s], self.prompt_lens[s]) = (0, prompt_len as u32);
    }

    /// One step: tokens of some sequences, in rising order of sequence. Returns the logits of every row.
    pub fn step(&mut self, parts: &[(usize, &[u32])]) -> Vec<Vec<f32>> {
        let (mut tokens, mut positions, mut sequence, mut sequences) = (vec![], vec![], vec![], vec![]);
        for (i, &(s, ids)) in parts.iter().enumerate() {
            tokens.extend_from_slice(ids);
            positions.extend((self.lens[s]..).take(ids.len()));
            sequence.extend(ids.iter().map(|_| i as u32));
            let (pages, prompt_len) = (&self.pages[s][..], self.prompt_lens[s]);
            sequences.push(Sequence { pages, state: s as u32, prompt_len });
            self.lens[s] += ids.len() as u32;
        }
        let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
        let step = Step {
            tokens: &tokens,
            positions: &positions,
            sequence: &sequence,
            sequences: &sequences,
            wanted: &wanted,
        };
        self.plan.run(&step).unwrap();
        let read = |row| {
            let mut logits = vec![0.0; self.width];
            self.plan.read(0, row, &mut logits).unwrap();
            logits
        };
        (0..tokens.len()).map(read).collect()
    }

    /// All of `ids` for sequence `s` in steps of up to `chunk`.
    pub fn feed(&mut self, s: usize, ids: &[u32], chunk: usize) -> Vec<Vec<f32>> {
        ids.chunks(chunk).flat_map(|ids| self.step(&[(s, ids)])).collect()
    }
}
