//! The last layers on the GPU, what comes before them elsewhere.

mod common;

use common::{gpu, open};
use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::GpuOptions;
use nibble_testkit::{runner::argmax, workspace_root};

const PROMPT: [u32; 5] = [7, 11, 13, 3, 5];

/// Greedy tokens, of plans that hand what crosses their border on.
fn tokens(plans: &mut [Box<dyn Plan>], given: &[usize], output: usize, vocab: usize) -> Vec<u32> {
    let mut tokens = PROMPT.to_vec();
    let mut done = 0;
    let mut logits = vec![0.0; vocab];
    while tokens.len() < 20 {
        let rows = tokens.len() - done;
        let step = Step {
            tokens: &tokens[done..],
            positions: &(done as u32..tokens.len() as u32).collect::<Vec<_>>(),
            sequence: &vec![0; rows],
            sequences: &[Sequence { pages: &[0], state: 0, prompt_len: PROMPT.len() as u32 }],
            wanted: &[rows as u32 - 1],
        };
        for i in 0..plans.len() {
            plans[i].run(&step).unwrap();
            let given = if i + 1 < plans.len() { given } else { &[] };
            for (input, &width) in given.iter().enumerate() {
                let mut numbers = vec![0.0; rows * width];
                for (row, numbers) in numbers.chunks_exact_mut(width).enumerate() {
                    plans[i].read(input, row, numbers).unwrap();
                }
                plans[i + 1].give(input, &numbers).unwrap();
            }
        }
        plans.last_mut().unwrap().read(output, 0, &mut logits).unwrap();
        done = tokens.len();
        tokens.push(argmax(&logits));
    }
    tokens
}

#[test]
fn models_cut_at_any_border_give_the_tokens_of_whole_ones() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for name in ["llama", "gpt-oss"] {
        let model = open(&workspace_root().join("golden/models").join(name));
        let graph = &model.graph;
        let limits = Limits {
            rows: 8,
            wanted: 1,
            sequences: 1,
            context: PAGE_LEN,
            pages: 1,
            state_slots: 0,
            kv: KvType::F32,
            activations: Activations::F32,
            check_finite: false,
        };
        let vocab = model.config.vocab;
        let whole = Reference.compile(graph, &limits).unwrap();
        let expected = tokens(&mut [whole], &[], 0, vocab);
        for border in 0..=graph.layers() {
            let split = graph.split(border).unwrap();
            let first = Reference.compile(&split.first, &limits).unwrap();
            let mut second = gpu.compile(&split.second, &limits).unwrap();
            assert!(!second.can_decode(), "it cannot go on alone");
            assert!(second.give(0, &[0.0; 3]).is_err() && second.give(1, &[]).is_err());
            let (_, output) = split.outputs[0];
            let found = tokens(&mut [first, second], &split.given, output, vocab);
            assert_eq!(found, expected, "{name}, border {border}");
        }
    }
}
