//! Generation on the device alone equals generation through the host, token for token.

mod common;

use common::{gpu, open};
use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_wgpu::{Gpu, GpuOptions};
use nibble_testkit::{runner::argmax, workspace_root};

const CONTEXT: usize = 3 * PAGE_LEN;
const SEQUENCES: usize = 2;
const STEPS: usize = 80;

fn plan(gpu: &Gpu, model: &nibble_model::Model) -> Box<dyn Plan> {
    let limits = Limits {
        rows: 16,
        wanted: SEQUENCES,
        sequences: SEQUENCES,
        context: CONTEXT,
        pages: SEQUENCES * CONTEXT / PAGE_LEN,
        state_slots: SEQUENCES,
        kv: KvType::F16,
        activations: Activations::Auto,
        check_finite: false,
    };
    gpu.compile(&model.graph, &limits).unwrap()
}

/// Runs `work` with a step of one row for each sequence at `position`.
fn with_step<T>(tokens: &[u32], position: u32, work: impl FnOnce(&Step<'_>) -> T) -> T {
    let pages: [&[u32]; SEQUENCES] = [&[0, 3, 5], &[4, 2, 1]];
    let sequences: Vec<_> =
        (0..SEQUENCES).map(|s| Sequence { pages: pages[s], state: s as u32, prompt_len: 1 }).collect();
    work(&Step {
        tokens,
        positions: &[position; SEQUENCES],
        sequence: &[0, 1],
        sequences: &sequences,
        wanted: &[0, 1],
    })
}

#[test]
fn the_device_goes_on_with_the_tokens_that_the_host_would_take() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for name in ["llama", "gemma2", "qwen3-moe"] {
        let model = open(&workspace_root().join("golden/models").join(name));
        let first = [7, 11];
        let mut host = plan(&gpu, &model);
        let mut expected: Vec<Vec<u32>> = vec![];
        let mut logits = vec![0.0; model.config.vocab];
        for position in 0..STEPS {
            let tokens = expected.last().cloned().unwrap_or(first.to_vec());
            with_step(&tokens, position as u32, |step| host.run(step).unwrap());
            let mut choose = |row| {
                host.read(0, row, &mut logits).unwrap();
                argmax(&logits)
            };
            expected.push((0..SEQUENCES).map(&mut choose).collect());
        }
        let mut device = plan(&gpu, &model);
        assert!(device.can_decode(), "{name}");
        for mode in device.modes() {
            device.set_mode(mode).unwrap();
            // In runs that end before they were to, as at a stop token.
            let mut found: Vec<Vec<u32>> = vec![];
            while found.len() < STEPS {
                let tokens = found.last().cloned().unwrap_or(first.to_vec());
                let (position, most) = (found.len() as u32, found.len() + 7);
                let steps = 16.min(STEPS - found.len());
                with_step(&tokens, position, |step| {
                    let mut take = |tokens: &[u32]| {
                        found.push(tokens.to_vec());
                        found.len() < most
                    };
                    device.decode(step, steps, &mut take).unwrap();
                });
            }
            assert_eq!(found, expected, "{name}, {mode}");
        }
    }
}

#[test]
fn modes_hand_over_what_their_names_say() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let model = open(&workspace_root().join("golden/models/llama"));
    let mut device = plan(&gpu, &model);
    let mut counts = std::collections::BTreeMap::new();
    for mode in device.modes() {
        device.set_mode(mode).unwrap();
        assert_eq!(device.mode(), mode);
        let before = device.counts();
        with_step(&[7, 11], 0, |step| device.decode(step, 16, &mut |_| true).unwrap());
        counts.insert(mode, device.counts() - before);
    }
    let calls = counts["one-submit"].calls;
    assert!(counts.values().all(|c| (c.steps, c.calls) == (16, calls)), "{counts:?}");
    // And one more for the tokens of a step.
    assert_eq!(counts["wait-per-op"].submissions, calls + 16);
    assert_eq!(counts["submit-per-op"].submissions, calls + 16);
    assert_eq!(counts["one-submit"].submissions, 16);
    assert_eq!(counts["two-in-flight"].submissions, 16);
    assert_eq!(counts["fold-4"].submissions, 4);
    assert_eq!(counts["fold-16"].submissions, 1);
    assert!(device.set_mode("none").is_err());
}

#[test]
fn recurrent_models_wait_for_the_host() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let model = open(&workspace_root().join("golden/models/qwen3.5"));
    assert!(!plan(&gpu, &model).can_decode(), "a step too many would be kept in the state");
}
