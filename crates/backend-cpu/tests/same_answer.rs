//! Logits do not change by a bit with threads, chunks, neighbours or instruction set; nor does rounding of the bank
//! change them much.

mod common;

use common::{Batch, cpu, golden_model};
use nibble_backend::{Activations, KvType, Limits};
use nibble_backend_cpu::{Cpu, CpuOptions, Isa};
use nibble_testkit::runner::limits;

/// One of each kind: plain, experts, windows with soft-caps, recurrent.
const MODELS: [&str; 4] = ["llama", "qwen3-moe", "gemma2", "qwen3.5"];

fn ids(seed: usize, count: usize) -> Vec<u32> {
    (0..count).map(|i| ((i * 31 + seed * 17 + i * i % 7) % 280) as u32).collect()
}

fn bits(logits: &[Vec<f32>]) -> Vec<u32> {
    logits.iter().flatten().map(|l| l.to_bits()).collect()
}

fn limits_for(rows: usize, kv: KvType, activations: Activations) -> Limits {
    Limits { activations, ..limits(rows, 192, kv) }
}

#[test]
fn threads_chunks_and_neighbours_change_nothing() {
    let prompt = ids(1, 150);
    for name in MODELS {
        let model = golden_model(name);
        let modes = KvType::ALL.map(|(_, kv)| (kv, Activations::Auto));
        for (kv, activations) in modes.into_iter().chain([(KvType::F16, Activations::I16)]) {
            let limits = limits_for(600, kv, activations);
            let mut expected = None;
            for threads in [1, 2, 3] {
                let cpu = cpu(threads);
                let mut batch = Batch::new(&cpu, &model, &limits, 4);
                for chunk in [1, 7, 64, 512] {
                    batch.start(0, prompt.len());
                    let alone = bits(&batch.feed(0, &prompt, chunk));
                    assert!(*expected.get_or_insert(alone.clone()) == alone, "{name} {kv} {threads} {chunk}");
                    let together = bits(&with_neighbours(&mut batch, &prompt, chunk));
                    assert!(
                        expected.as_ref() == Some(&together),
                        "{name} {kv} {threads} {chunk} with neighbours"
                    );
                }
            }
        }
    }
}

/// Sequence 2 among three others that run other tokens at other lengths beside it.
fn with_neighbours(batch: &mut Batch, prompt: &[u32], chunk: usize) -> Vec<Vec<f32>> {
    let others = [ids(2, 150), ids(3, 100), ids(4, 130)];
    (0..4).for_each(|s| batch.start(s, prompt.len()));
    let mut found = Vec::new();
    for (i, part) in prompt.chunks(chunk).enumerate() {
        let other = |s: usize| others[s].chunks(chunk).nth(i).unwrap_or(&[]);
        let mut parts = vec![(0, other(0)), (1, other(1)), (2, part), (3, other(2))];
        parts.retain(|(_, ids)| !ids.is_empty());
        let before: usize = parts.iter().take_while(|(s, _)| *s < 2).map(|(_, ids)| ids.len()).sum();
        found.extend_from_slice(&batch.step(&parts)[before..before + part.len()]);
    }
    found
}

#[test]
fn instruction_sets_change_nothing() {
    let prompt = ids(5, 70);
    for name in MODELS {
        let model = golden_model(name);
        let modes = KvType::ALL.map(|(_, kv)| (kv, Activations::Auto));
        for (kv, activations) in modes.into_iter().chain([(KvType::F16, Activations::I16)]) {
            let mut expected = None;
            for isa in Isa::available() {
                let cpu = Cpu::new(CpuOptions { threads: Some(2), isa: Some(isa), ..CpuOptions::default() });
                let mut batch = Batch::new(&cpu, &model, &limits_for(70, kv, activations), 1);
                let found = bits(&batch.feed(0, &prompt, 70));
                assert!(*expected.get_or_insert(found.clone()) == found, "{name} {kv} {isa}");
            }
        }
    }
}

/// The context is cut into parts that threads share for single rows; the joins are the same for whole prompts.
#[test]
fn a_long_context_is_joined_alike_in_one_step_and_row_by_row() {
    let model = golden_model("llama");
    let prompt = ids(6, 2100);
    let limits = Limits { activations: Activations::Auto, ..limits(2100, 2200, KvType::F16) };
    let whole = bits(&Batch::new(&cpu(2), &model, &limits, 1).feed(0, &prompt, 2100));
    let mut batch = Batch::new(&cpu(2), &model, &limits, 1);
    let mut found = batch.feed(0, &prompt[..2080], 2080);
    found.extend(batch.feed(0, &prompt[2080..2090], 1));
    found.extend(batch.feed(0, &prompt[2090..], 3));
    assert!(bits(&found) == whole);
}

#[test]
fn rounding_of_the_bank_stays_close() {
    let prompt = ids(7, 13);
    for name in MODELS {
        let model = golden_model(name);
        let run = |kv, chunk| {
            let limits = limits_for(64, kv, Activations::F32);
            Batch::new(&cpu(2), &model, &limits, 1).feed(0, &prompt, chunk)
        };
        let exact = run(KvType::F32, 13);
        for (kv, bound) in [(KvType::F16, 0.02), (KvType::Q8_0, 0.5), (KvType::Q4_0, 4.0)] {
            for chunk in [1, 4, 7, 64] {
                let found = run(kv, chunk);
                let pairs = found.iter().flatten().zip(exact.iter().flatten());
                let worst = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(found.iter().flatten().all(|l| l.is_finite()));
                assert!(worst <= bound, "{name} {kv} in chunks of {chunk}: {worst}");
            }
        }
    }
}
