//! In strict mode an answer does not depend on how many rows share its steps, on how its prompt was cut, or on what was kept.

mod common;

use common::{gpu, open};
use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_wgpu::GpuOptions;
use nibble_model::Model;
use nibble_testkit::{golden, tiny};

/// Tokens of each prompt: a page and a part of the next.
const LEN: usize = PAGE_LEN + 33;

/// Sequences that can run at once.
const SEQUENCES: usize = 4;

fn plan(backend: &dyn Backend, model: &Model, activations: Activations, kv: KvType) -> Box<dyn Plan> {
    let limits = Limits {
        rows: 512,
        wanted: LEN,
        sequences: SEQUENCES,
        context: 2 * PAGE_LEN,
        pages: 2 * SEQUENCES + 2,
        state_slots: SEQUENCES + 1,
        kv,
        activations,
        check_finite: false,
    };
    backend.compile(&model.graph, &limits).unwrap()
}

/// The bits of the logits that the first of `batch` sequences has at its positions from `first` on, in steps of up to
/// `chunk` tokens each. Its tokens before are there already.
fn run(
    plan: &mut dyn Plan,
    width: usize,
    vocab: u32,
    first: usize,
    chunk: usize,
    batch: usize,
) -> Vec<Vec<u32>> {
    let prompts: Vec<Vec<u32>> =
        (0..batch).map(|s| tiny::prompt(s as u64 + 1, LEN).iter().map(|t| t % vocab).collect()).collect();
    let pages: Vec<[u32; 2]> = (0..batch as u32).map(|s| [2 * s + 1, 2 * s]).collect();
    for slot in (0..batch as u32).filter(|&slot| slot > 0 || first == 0) {
        plan.clear_state(slot).unwrap();
    }
    let mut out = vec![];
    let mut logits = vec![0.0; width];
    // Others start with what the first one has behind it.
    let mut done = first;
    while done < LEN {
        let count = chunk.min(LEN - done);
        let (mut tokens, mut positions, mut sequence) = (vec![], vec![], vec![]);
        for (s, prompt) in prompts.iter().enumerate() {
            let from = if s == 0 { done } else { done - first };
            tokens.extend_from_slice(&prompt[from..from + count]);
            positions.extend(from as u32..(from + count) as u32);
            sequence.extend(std::iter::repeat_n(s as u32, count));
        }
        let sequences: Vec<_> = pages
            .iter()
            .enumerate()
            .map(|(s, pages)| Sequence { pages, state: s as u32, prompt_len: LEN as u32 })
            .collect();
        let wanted: Vec<u32> = (0..count as u32).collect();
        let step = Step {
            tokens: &tokens,
            positions: &positions,
            sequence: &sequence,
            sequences: &sequences,
            wanted: &wanted,
        };
        plan.run(&step).unwrap();
        for row in 0..count {
            plan.read(0, row, &mut logits).unwrap();
            out.push(logits.iter().map(|x| x.to_bits()).collect());
        }
        done += count;
    }
    out
}

/// Fills the first page of the first sequence from a copy of one that ran before.
fn keep(plan: &mut dyn Plan, width: usize, vocab: u32) {
    run(plan, width, vocab, 0, 7, 1);
    let kept = (2 * SEQUENCES) as u32;
    plan.copy_page(1, kept).unwrap();
    plan.copy_page(kept, 1).unwrap();
}

#[test]
fn strict_answers_depend_on_nothing_beside_them() {
    let options = GpuOptions { strict: true, ..GpuOptions::default() };
    let Some(gpu) = gpu(options) else { return };
    for (i, path) in golden::models().into_iter().enumerate() {
        let model = open(&path);
        let (width, vocab) = (model.config.vocab, model.config.vocab as u32);
        // Which kernels run depends on both, but not on one of them because of the other.
        let activations = [Activations::Auto, Activations::F32][i % 2];
        let kv = [KvType::F16, KvType::Q4_0, KvType::Q8_0][i % 3];
        let mut plan = plan(&gpu, &model, activations, kv);
        let expected = run(&mut *plan, width, vocab, 0, 512, 1);
        for (chunk, batch) in [(1, 2), (7, 4), (64, 1)] {
            let found = run(&mut *plan, width, vocab, 0, chunk, batch);
            let other = (0..LEN).find(|&p| found[p] != expected[p]);
            assert_eq!(
                other,
                None,
                "{}, {activations:?}, {kv}, chunk {chunk}, batch {batch}",
                path.display()
            );
        }
        if !model.graph.is_recurrent() {
            keep(&mut *plan, width, vocab);
            let found = run(&mut *plan, width, vocab, PAGE_LEN, 7, 4);
            assert!(found == expected[PAGE_LEN..], "{}, {activations:?}, {kv}, kept", path.display());
        }
    }
}
