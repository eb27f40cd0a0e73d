//! Tokens a second of a model: `cargo run --release --example gpu_speed -- MODEL [PROMPT] [GENERATED] [DEPTH] [SEQUENCES]`.
//!
//! Fills the sequences up to DEPTH, runs a prompt (512 tokens) in one step, then generates (64 tokens) on the device alone;
//! median, least and most of five runs each; then the same with tokens that are drawn in other ways. With `TRACE=1`, a table of what the calls of a prompt and of a token took;
//! with `CACHE=FOLDER`, kernels are tried and tuned once; with `TUNE=0`, they are not tuned. `KV=q8_0`: how keys and values are kept.

use nibble_backend::{
    Activations, Backend, Draw, KvType, Limits, PAGE_LEN, Plan, Sequence, Span, Step, Tracer,
};
use nibble_backend_wgpu::{Cache, Gpu, GpuOptions, Tuning};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

/// Runs of each kind.
const RUNS: usize = 5;

/// Ways to draw tokens.
const DRAWS: [(&str, Draw); 4] = [
    ("the largest logit", Draw::LARGEST),
    ("temperature", Draw { top_k: 0, inverse: 1.25, ..Draw::LARGEST }),
    ("top-p 0.95", Draw { top_k: 0, top_p: 4_080_218_931, ..Draw::LARGEST }),
    ("top-k 40, top-p 0.95", Draw { top_k: 40, top_p: 4_080_218_931, ..Draw::LARGEST }),
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let path = args.next().ok_or("expected the path of a model")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |arg| arg.parse());
    let (prompt, generated, depth, sequences) = (number(512)?, number(64)?, number(0)?, number(1)?);
    let checkpoint = nibble_format::open(path.as_ref(), &nibble_quant::Registry::default())?;
    let model = nibble_model::build(&checkpoint)?;
    let context = depth + prompt + generated + 2;
    let per_sequence = context.div_ceil(PAGE_LEN);
    let limits = Limits {
        rows: prompt.max(depth.min(2048)).max(sequences),
        wanted: sequences,
        sequences,
        context,
        pages: per_sequence * sequences,
        state_slots: sequences,
        kv: std::env::var("KV").map_or(Ok(KvType::F16), |kv| kv.parse())?,
        activations: Activations::Auto,
        check_finite: false,
    };
    let folder = std::env::var_os("CACHE");
    let cache = folder.map(|folder| Cache { folder: folder.into(), build: "gpu_speed".into() });
    let tuning = if std::env::var_os("TUNE").is_some_and(|v| v == "0") { Tuning::Off } else { Tuning::Auto };
    let gpu = Gpu::new(None, GpuOptions { cache, tuning, ..GpuOptions::default() })?;
    let start = Instant::now();
    gpu.prepare(&model.graph, &limits)?.iter().for_each(|warning| println!("{warning}"));
    println!("{} kernels tried, in {:.2} s", gpu.tried(), start.elapsed().as_secs_f64());
    let plan = gpu.compile(&model.graph, &limits)?;
    println!("{}; {:?}", gpu.describe(), plan.memory());
    println!("ready after {:.1} s", start.elapsed().as_secs_f64());
    let pages: Vec<Vec<u32>> =
        (0..sequences).map(|s| (0..per_sequence).map(|p| (p * sequences + s) as u32).collect()).collect();
    let mut run = Run { plan, pages, logits: vec![0.0; model.config.vocab] };
    let mut times = [const { vec![] }; 1 + DRAWS.len()];
    let all: Vec<usize> = (0..sequences).collect();
    for _ in 0..RUNS {
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
            times[0].push(start.elapsed());
        }
        for (times, (_, draw)) in times[1..].iter_mut().zip(DRAWS) {
            let start = Instant::now();
            run.decode(&all, depth + prompt, generated, draw)?;
            times.push(start.elapsed());
        }
    }
    let (prompts, tokens) = times.split_first_mut().ok_or("no times")?;
    report(&format!("prompt {prompt} at {depth}"), prompt, prompts);
    for (times, (name, _)) in tokens.iter_mut().zip(DRAWS) {
        let what = format!("generation {generated} at {}, {sequences} sequences, {name}", depth + prompt);
        report(&what, generated * sequences, times);
    }
    if std::env::var_os("TRACE").is_some() {
        let times = Arc::new(Times { start: Instant::now(), calls: Mutex::default() });
        run.plan.trace(Arc::clone(&times) as Arc<dyn Tracer>);
        run.step(&[0], depth, prompt)?;
        times.print("a prompt");
        run.step(&all, depth + prompt, 1)?;
        times.calls.lock().expect("no panic").clear();
        run.step(&all, depth + prompt + 1, 1)?;
        times.print("a token of each sequence");
    }
    Ok(())
}

/// Median, least and most.
fn report(what: &str, count: usize, times: &mut [Duration]) {
    times.sort();
    let rate = |time: Duration| count as f64 / time.as_secs_f64();
    println!(
        "{what}: {:.1} tokens/s ({:.1} to {:.1}), {:.3} ms",
        rate(times[times.len() / 2]),
        rate(times[times.len() - 1]),
        rate(times[0]),
        times[times.len() / 2].as_secs_f64() * 1e3
    );
}

/// Time by kind of call: how often, nanoseconds, bytes of matrices.
#[derive(Debug)]
struct Times {
    start: Instant,
    calls: Mutex<BTreeMap<String, [u64; 3]>>,
}

impl Tracer for Times {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn span(&self, span: Span<'_>) {
        let mut calls = self.calls.lock().expect("no panic");
        let sums = calls.entry(span.label.what.clone()).or_default();
        let add = [1, span.end - span.start, span.counts[1].1];
        sums.iter_mut().zip(add).for_each(|(sum, add)| *sum += add);
    }
}

impl Times {
    fn print(&self, what: &str) {
        let mut calls: Vec<_> =
            std::mem::take(&mut *self.calls.lock().expect("no panic")).into_iter().collect();
        calls.sort_by_key(|(_, [_, time, _])| std::cmp::Reverse(*time));
        let [count, time] = [0, 1].map(|i| calls.iter().map(|(_, sums)| sums[i]).sum::<u64>());
        println!("{what}: {count} calls, {:.3} ms on the device", time as f64 / 1e6);
        for (label, [count, time, bytes]) in calls {
            let (each, rate) = (time as f64 / 1e3 / count as f64, bytes as f64 / time as f64);
            println!("{:9.1} us  {count:4} x {each:8.2} us  {rate:7.0} GB/s  {label}", time as f64 / 1e3);
        }
    }
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
        self.with_step(of, at, count, |plan, step| plan.run(step))?;
        for row in 0..of.len() {
            self.plan.read(0, row, &mut self.logits)?;
        }
        Ok(())
    }

    /// `count` tokens of each sequence from position `at` on.
    fn decode(
        &mut self,
        of: &[usize],
        at: usize,
        count: usize,
        draw: Draw,
    ) -> Result<(), nibble_backend::Error> {
        let draws = vec![draw; of.len()];
        self.with_step(of, at, 1, |plan, step| plan.decode(step, &draws, count, &mut |_| true))
    }

    fn with_step(
        &mut self,
        of: &[usize],
        at: usize,
        count: usize,
        work: impl FnOnce(&mut dyn Plan, &Step<'_>) -> Result<(), nibble_backend::Error>,
    ) -> Result<(), nibble_backend::Error> {
        let (mut tokens, mut positions, mut sequence, mut wanted) = (vec![], vec![], vec![], vec![]);
        for i in 0..of.len() {
            tokens.extend((0..count).map(|i| ((at + i) * 7919 % 1000) as u32));
            positions.extend((at as u32..).take(count));
            sequence.extend(std::iter::repeat_n(i as u32, count));
            wanted.push(tokens.len() as u32 - 1);
        }
        let sequences: Vec<_> =
            of.iter().map(|&s| Sequence { pages: &self.pages[s], state: s as u32, prompt_len: 0 }).collect();
        let step = Step {
            tokens: &tokens,
            positions: &positions,
            sequence: &sequence,
            sequences: &sequences,
            wanted: &wanted,
        };
        work(&mut *self.plan, &step)
    }
}
