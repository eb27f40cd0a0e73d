//! Attention in half precision against the reference: few rows, many, several sequences together, long ones.

mod common;

use common::gpu;
use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::GpuOptions;
use nibble_testkit::ops::{graphs, limits, run_plan};

/// What half precision may change, of a row's largest number.
const TOLERANCE: f32 = 4e-3;

fn fast(rows: usize) -> Limits {
    Limits { kv: KvType::F16, activations: Activations::Auto, check_finite: false, ..limits(rows) }
}

fn compare(name: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    compare_within(TOLERANCE, name, found, expected);
}

fn compare_within(tolerance: f32, name: &str, found: &[Vec<f32>], expected: &[Vec<f32>]) {
    for (row, (found, expected)) in found.iter().zip(expected).enumerate() {
        let largest = expected.iter().fold(1.0f32, |max, e| max.max(e.abs()));
        for (i, (f, e)) in found.iter().zip(expected).enumerate() {
            let close = (f - e).abs() <= tolerance * largest;
            assert!(close, "{name}: row {row}, column {i}: {f}, expected {e}");
        }
    }
}

#[test]
fn attention_in_half_precision_agrees_with_the_reference() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for (name, graph) in graphs().into_iter().filter(|(name, _)| name.starts_with("attention ")) {
        if name.contains("rotation") {
            continue; // its products are rounded too
        }
        let mut plan = gpu.compile(&graph, &fast(257)).unwrap();
        let mut reference = Reference.compile(&graph, &limits(257)).unwrap();
        for (counts, steps) in [([1, 0], 2), ([2, 1], 3), ([33, 17], 3), ([128, 129], 1), ([100, 1], 1)] {
            let expected = run_plan(&mut *reference, &graph, counts, steps);
            let found = run_plan(&mut *plan, &graph, counts, steps);
            compare(&format!("{name} {counts:?}"), &found, &expected);
        }
    }
}

#[test]
fn rows_alone_in_their_sequences_agree_with_the_reference() {
    const FIRST: [usize; 2] = [126, 65];
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    // Numbers from prompts of those lengths on: two rows a step, which cross the end of a page.
    let run = |mut plan: Box<dyn Plan>, width: usize| {
        let pages: [Vec<u32>; 2] = [vec![1, 3, 5, 7], vec![6, 4, 2, 0]];
        let mut out = vec![];
        for step in 0..4 {
            let mut rows = vec![];
            for (s, &first) in FIRST.iter().enumerate() {
                let positions = if step == 0 { 0..first } else { first + step - 1..first + step };
                rows.extend(positions.map(|p| (((p * 37 + s * 101) % 300) as u32, p as u32, s as u32)));
            }
            let [tokens, positions, sequence]: [Vec<u32>; 3] = [
                rows.iter().map(|r| r.0).collect(),
                rows.iter().map(|r| r.1).collect(),
                rows.iter().map(|r| r.2).collect(),
            ];
            let wanted: Vec<u32> = if step == 0 { vec![0] } else { vec![0, 1] };
            let sequences = pages.each_ref().map(|pages| Sequence { pages, state: 0, prompt_len: 40 });
            let (tokens, positions, sequence, wanted) = (&tokens, &positions, &sequence, &wanted);
            plan.run(&Step { tokens, positions, sequence, sequences: &sequences, wanted }).unwrap();
            for row in 0..if step == 0 { 0 } else { 2 } {
                let mut numbers = vec![0.0; width];
                plan.read(0, row, &mut numbers).unwrap();
                out.push(numbers);
            }
        }
        out
    };
    let rows = FIRST[0] + FIRST[1];
    for (name, graph) in graphs().into_iter().filter(|(name, _)| name.starts_with("attention ")) {
        let width = graph.node(graph.outputs[0]).width;
        let expected = run(Reference.compile(&graph, &limits(rows)).unwrap(), width);
        for kv in [KvType::F16, KvType::F32] {
            let exact = Limits { kv, check_finite: false, ..limits(rows) };
            let found = run(gpu.compile(&graph, &exact).unwrap(), width);
            compare(&format!("{name} {kv}"), &found, &expected);
        }
    }
}

/// A number on the edge between two codes may fall to either side where sums before it differ; then its step is what is off.
#[test]
fn attention_in_blocks_agrees_with_the_reference() {
    for strict in [false, true] {
        let Some(gpu) = gpu(GpuOptions { strict, ..GpuOptions::default() }) else { return };
        for (kv, tolerance) in [(KvType::Q8_0, 5e-3), (KvType::Q4_0, 5e-2)] {
            // Each shape, window, cap, sinks and rotation once: software takes long to compile a kernel.
            let some = match (strict, kv) {
                (false, KvType::Q8_0) => {
                    &["1/1 (16, 16) (Some(70)", "sinks 4/2", "6/1 (80, 48) (None", "rotation"][..]
                }
                (false, _) => &["3/3 (20, 12) (Some(9)", "sinks 6/1", "4/2 (64, 64) (Some(70)", "rotation"],
                _ => &["sinks 6/1"],
            };
            let wanted = |name: &str| name.starts_with("attention ") && some.iter().any(|s| name.contains(s));
            for (name, graph) in graphs().into_iter().filter(|(name, _)| wanted(name)) {
                let exact = Limits { kv, ..limits(50) };
                let mut plan = gpu.compile(&graph, &Limits { check_finite: false, ..exact.clone() }).unwrap();
                let mut reference = Reference.compile(&graph, &exact).unwrap();
                for (counts, steps) in [([2, 1], 3), ([33, 17], 2)] {
                    let expected = run_plan(&mut *reference, &graph, counts, steps);
                    let found = run_plan(&mut *plan, &graph, counts, steps);
                    let name = format!("{name} {kv} {counts:?}, strict: {strict}");
                    compare_within(tolerance, &name, &found, &expected);
                }
            }
        }
    }
}

#[test]
fn a_long_sequence_goes_on_row_by_row_as_the_reference_does() {
    const LEN: usize = 70 * PAGE_LEN; // more pages than runs
    let (_, graph) = graphs().into_iter().find(|(name, _)| name.starts_with("attention 4/2")).unwrap();
    let long =
        |limits: Limits| Limits { context: LEN + 2, pages: LEN / PAGE_LEN + 1, sequences: 1, ..limits };
    let pages: Vec<u32> = (0..=(LEN / PAGE_LEN) as u32).rev().collect();
    let run = |mut plan: Box<dyn Plan>, rows: usize| {
        let mut out = vec![];
        let mut at = 0;
        while at < LEN + 2 {
            let count = if at < LEN { rows } else { 1 };
            let tokens: Vec<u32> = (at..at + count).map(|p| (p * 37 % 300) as u32).collect();
            let positions: Vec<u32> = (at..at + count).map(|p| p as u32).collect();
            let wanted = [count as u32 - 1];
            let sequences = [Sequence { pages: &pages, state: 0, prompt_len: 1 }];
            let step = Step {
                tokens: &tokens,
                positions: &positions,
                sequence: &vec![0; count],
                sequences: &sequences,
                wanted: &wanted,
            };
            plan.run(&step).unwrap();
            at += count;
            if at > LEN {
                let mut numbers = vec![0.0; graph.node(graph.outputs[0]).width];
                plan.read(0, 0, &mut numbers).unwrap();
                out.push(numbers);
            }
        }
        out
    };
    let expected = run(Reference.compile(&graph, &long(limits(PAGE_LEN))).unwrap(), PAGE_LEN);
    for strict in [false, true] {
        let Some(gpu) = gpu(GpuOptions { strict, ..GpuOptions::default() }) else { return };
        let found = run(gpu.compile(&graph, &long(fast(PAGE_LEN))).unwrap(), PAGE_LEN);
        compare(&format!("strict: {strict}"), &found, &expected);
    }
}
