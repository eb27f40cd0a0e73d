//! Tokens a second of a model: `cargo run --release --example speed -- MODEL [PROMPT] [GENERATED] [THREADS] [CONTEXT]`.
//!
//! Runs the prompt (512 tokens) in one step, then generates (64 tokens) one by one; the best of three runs each.

use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_cpu::{Cpu, CpuOptions};
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("expected the path of a model")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |arg| arg.parse());
    let (prompt, generated, threads, depth) = (number(512)?, number(64)?, number(2)?, number(0)?);
    let checkpoint = nibble_format::open(path.as_ref(), &nibble_quant::Registry::default())?;
    let model = nibble_model::build(&checkpoint)?;
    let context = depth + prompt + generated;
    let limits = Limits {
        rows: prompt.max(depth.min(512)).max(1),
        wanted: 1,
        sequences: 1,
        context,
        pages: context.div_ceil(PAGE_LEN),
        state_slots: 1,
        kv: KvType::F16,
        activations: Activations::Auto,
        check_finite: false,
    };
    let cpu = Cpu::new(CpuOptions { threads: Some(threads), ..CpuOptions::default() });
    let mut plan = cpu.compile(&model.graph, &limits)?;
    println!("{}; {:?}", cpu.describe(), plan.memory());
    let pages: Vec<u32> = (0..limits.pages as u32).collect();
    let mut best = [Duration::MAX; 2];
    for _ in 0..3 {
        plan.clear_state(0)?;
        let mut at = 0;
        while at < depth {
            let count = (depth - at).min(limits.rows);
            step(&mut *plan, &pages, at, count)?;
            at += count;
        }
        let start = Instant::now();
        step(&mut *plan, &pages, depth, prompt)?;
        best[0] = best[0].min(start.elapsed());
        let start = Instant::now();
        for i in 0..generated {
            step(&mut *plan, &pages, depth + prompt + i, 1)?;
        }
        best[1] = best[1].min(start.elapsed());
    }
    let rate = |count: usize, time: Duration| count as f64 / time.as_secs_f64();
    println!("prompt {prompt}: {:.1} tokens/s", rate(prompt, best[0]));
    println!("generation {generated}: {:.1} tokens/s", rate(generated, best[1]));
    Ok(())
}

/// `count` rows from position `at` on; the last row's logits are wanted.
fn step(plan: &mut dyn Plan, pages: &[u32], at: usize, count: usize) -> Result<(), nibble_backend::Error> {
    if count == 0 {
        return Ok(());
    }
    let tokens: Vec<u32> = (0..count).map(|i| ((at + i) * 7919 % 1000) as u32).collect();
    let positions: Vec<u32> = (at as u32..).take(count).collect();
    let sequence = Sequence { pages, state: 0, prompt_len: 0 };
    plan.run(&Step {
        tokens: &tokens,
        positions: &positions,
        sequence: &vec![0; count],
        sequences: &[sequence],
        wanted: &[count as u32 - 1],
    })
}
