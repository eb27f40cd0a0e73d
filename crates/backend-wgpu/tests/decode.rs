//! Generation on the device alone equals generation through the host, token for token.

mod common;

use common::{gpu, open};
use nibble_backend::{Activations, Backend, Draw, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_wgpu::{Gpu, GpuOptions};
use nibble_sampler::{Sampler, SamplerParams};
use nibble_testkit::workspace_root;

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

/// Samplers of two sequences: both greedy, one of them, none.
fn samplers(vocab: usize) -> Vec<[Sampler; SEQUENCES]> {
    let greedy = || SamplerParams { temperature: 0.0, ..Default::default() };
    let drawn = |seed| SamplerParams {
        temperature: 0.8,
        top_k: 40,
        top_p: 0.95,
        min_p: 0.02,
        seed,
        ..Default::default()
    };
    let free = |seed| SamplerParams { temperature: 1.3, seed, ..Default::default() };
    [[greedy(), greedy()], [drawn(1), greedy()], [drawn(2), free(3)], [free(4), free(4)]]
        .map(|pair| pair.map(|params| Sampler::new(params, vocab).unwrap()))
        .into()
}

#[test]
fn the_device_goes_on_with_the_tokens_that_the_host_would_take() {
    for (strict, names) in [(false, &["llama", "gemma2", "qwen3-moe"][..]), (true, &["llama"])] {
        let Some(gpu) = gpu(GpuOptions { strict, ..GpuOptions::default() }) else { return };
        for name in names {
            let model = open(&workspace_root().join("golden/models").join(name));
            let (mut host, mut device) = (plan(&gpu, &model), plan(&gpu, &model));
            assert!(device.can_decode(), "{name}");
            // Which model made the logits is nothing to a draw.
            let kinds = if *name == "llama" { usize::MAX } else { 1 };
            for (i, mut samplers) in samplers(model.config.vocab).into_iter().enumerate().take(kinds) {
                let expected = through_the_host(&mut *host, &mut samplers.clone(), model.config.vocab);
                // Handing over in other ways changes nothing, however tokens are chosen.
                let modes = if i == 0 && !strict { device.modes() } else { vec![device.mode()] };
                for mode in modes {
                    device.set_mode(mode).unwrap();
                    let found = on_the_device(&mut *device, &mut samplers);
                    assert_eq!(found, expected, "{name}, {mode}, {:?}", samplers.map(|s| s.params().clone()));
                }
            }
        }
    }
}

/// The first tokens of both sequences.
const FIRST: [u32; SEQUENCES] = [7, 11];

fn through_the_host(plan: &mut dyn Plan, samplers: &mut [Sampler; SEQUENCES], vocab: usize) -> Vec<Vec<u32>> {
    let mut all: Vec<Vec<u32>> = vec![];
    let mut logits = vec![0.0; vocab];
    for position in 0..STEPS {
        let tokens = all.last().cloned().unwrap_or(FIRST.to_vec());
        with_step(&tokens, position as u32, |step| plan.run(step).unwrap());
        let choose = |(row, sampler): (usize, &mut Sampler)| {
            plan.read(0, row, &mut logits).unwrap();
            let token = sampler.sample(&mut logits).unwrap();
            sampler.accept(token);
            token
        };
        all.push(samplers.iter_mut().enumerate().map(choose).collect());
    }
    all
}

/// In runs that end before they were to, as at a stop token.
fn on_the_device(plan: &mut dyn Plan, samplers: &mut [Sampler; SEQUENCES]) -> Vec<Vec<u32>> {
    let mut found: Vec<Vec<u32>> = vec![];
    while found.len() < STEPS {
        let tokens = found.last().cloned().unwrap_or(FIRST.to_vec());
        let (position, most) = (found.len() as u32, found.len() + 7);
        let steps = 16.min(STEPS - found.len());
        let draws = samplers.each_mut().map(|sampler| {
            sampler.seek(u64::from(position));
            sampler.draw().unwrap()
        });
        with_step(&tokens, position, |step| {
            let mut take = |tokens: &[u32]| {
                found.push(tokens.to_vec());
                found.len() < most
            };
            plan.decode(step, &draws, steps, &mut take).unwrap();
        });
    }
    found
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
        with_step(&[7, 11], 0, |step| {
            device.decode(step, &[Draw::LARGEST; SEQUENCES], 16, &mut |_| true).unwrap()
        });
        counts.insert(mode, device.counts() - before);
    }
    let calls = counts["one-submit"].calls;
    assert!(counts.values().all(|c| (c.steps, c.calls) == (16, calls)), "{counts:?}");
    // And one more for the tokens of a step.
    assert_eq!(counts["wait-per-op"].submissions, calls + 16);
    assert_eq!(counts["submit-per-op"].submissions, calls + 16);
    assert_eq!(counts["one-submit"].submissions, 16);
    // The first step begins before it is all written.
    assert!((17..=18).contains(&counts["two-in-flight"].submissions), "{counts:?}");
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
