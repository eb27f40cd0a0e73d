//! Tokens a second of a model: `cargo run --release --example gpu_speed -- MODEL [PROMPT] [GENERATED] [DEPTH] [SEQUENCES]`.
//!
//! Fills the sequences up to DEPTH, runs a prompt (512 tokens) in one step, then generates (64 tokens) one by one, each
//! read back; the best of three runs each.

use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_wgpu::{Gpu, GpuOptions};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("expected the path of a model")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |arg| arg.parse());
    let (prompt, generated, depth, sequences) = (number(512)?, number(64)?, number(0)?, number(1)?);
    let checkpoint = nibble_format::open(path.as_ref(), &nibble_quant::Registry::default())?;
    let model = nibble_model::build(&checkpoint)?;
    let context = depth + prompt + generated;
    let per_sequence = context.div_ceil(PAGE_LEN);
    let limits = Limits {
        rows: prompt.max(depth.min(2048)).max(sequences),
        wanted: sequences,
        sequences,
        context,
        pages: per_sequence * sequences,
        state_slots: sequences,
        kv: KvType::F16,
        activations: Activations::Auto,
        check_finite: false,
    };
    let gpu = Gpu::new(None, GpuOptions::default())?;
    let start = Instant::now();
    let plan = gpu.compile(&model.graph, &limits)?;
    println!("{}; {:?}", gpu.describe(), plan.memory());
    println!("ready after {:.1} s", start.elapsed().as_secs_f64());
    let pages: Vec<Vec<u32>> =
        (0..sequences).map(|s| (0..per_sequence).map(|p| (p * sequences + s) as u32).collect()).collect();
    let mut run = Run { plan, pages, logits: vec![0.0; model.config.vocab] };
    let mut best = [Duration::MAX; 2];
    for _ in 0..3 {
        for s in 0..sequences {
            run.plan.clear_state(s as u32)?;
            let mut at = 0;
            while at < depth {
                let count = (depth - at).min(limits.rows);
                run.step(&[s], at, count)?;
                at += count;
            }
            let start = Instant::now();
            run.step(&[s], depth, prompt)?;
            best[0] = best[0].min(start.elapsed());
        }
        let all: Vec<usize> = (0..sequences).collect();
        let start = Instant::now();
        for i in 0..generated {
            run.step(&all, depth + prompt + i, 1)?;
        }
        best[1] = best[1].min(start.elapsed());
    }
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64();
    println!("prompt {prompt} at {depth}: {:.1} tokens/s", rate(prompt, best[0]));
    println!(
        "generation {generated} at {}, {sequences} sequences: {:.1} tokens/s, {:.3} ms a step",
        depth + prompt,
        rate(generated * sequences, best[1]),
        best[1].as_secs_f64() * 1e3 / generated as f64
    );
    Ok(())
}

struct Run {
    plan: Box<dyn Plan>,
    pages: Vec<Vec<u32>>,
    logits: Vec<f32>,
}

impl Run {
    /// `count` rows of each sequence from position `at` on; the last rows' logits are read.
    fn step(&mut self, of: &[usize], at: usize, count: usize) -> Result<(), nibble_backend::Error> {
        if count == 0 {
            return Ok(());
        }
        let (mut tokens, mut positions, mut sequence, mut wanted) = (vec![], vec![], vec![], vec![]);
        for i in 0..of.len() {
            tokens.extend((0..count).map(|i| ((at + i) * 7919 % 1000) as u32));
            positions.extend((at as u32..).take(count));
            sequence.extend(std::iter::repeat_n(i as u32, count));
            wanted.push(tokens.len() as u32 - 1);
        }
        let sequences: Vec<_> =
            of.iter().map(|&s| Sequence { pages: &self.pages[s], state: s as u32, prompt_len: 0 }).collect();
        self.plan.run(&Step {
            tokens: &tokens,
            positions: &positions,
            sequence: &sequence,
            sequences: &sequences,
            wanted: &wanted,
        })?;
        for row in 0..of.len() {
            self.plan.read(0, row, &mut self.logits)?;
        }
        Ok(())
    }
}
