//! What a plan takes is reserved when it is made, and given back with it.

mod common;

use common::{gpu, open};
use nibble_backend::{Activations, Backend, Draw, Error, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_wgpu::{Gpu, GpuOptions};
use nibble_model::Model;
use nibble_testkit::{runner::argmax, workspace_root};

const CONTEXT: usize = 2 * PAGE_LEN;

fn model() -> Model {
    open(&workspace_root().join("golden/models/llama"))
}

fn plan(gpu: &Gpu, model: &Model) -> Box<dyn Plan> {
    let limits = Limits {
        rows: 32,
        wanted: 1,
        sequences: 1,
        context: CONTEXT,
        pages: CONTEXT / PAGE_LEN,
        state_slots: 0,
        kv: KvType::F16,
        activations: Activations::Auto,
        check_finite: false,
    };
    gpu.compile(&model.graph, &limits).unwrap()
}

/// Runs `work` with one row at `position`.
fn with_step<T>(token: u32, position: usize, work: impl FnOnce(&Step<'_>) -> T) -> T {
    let sequence = Sequence { pages: &[1, 0], state: 0, prompt_len: 1 };
    work(&Step {
        tokens: &[token],
        positions: &[position as u32],
        sequence: &[0],
        sequences: &[sequence],
        wanted: &[0],
    })
}

/// One step whose token the host chooses.
fn step(plan: &mut dyn Plan, logits: &mut [f32], token: u32, position: usize) -> Result<u32, Error> {
    with_step(token, position, |step| plan.run(step))?;
    plan.read(0, 0, logits)?;
    Ok(argmax(logits))
}

#[test]
fn steps_reserve_no_memory_of_the_device() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let model = model();
    let mut plan = plan(&gpu, &model);
    let mut logits = vec![0.0; model.config.vocab];
    let mut token = 7;
    for position in 0..4 {
        token = step(&mut *plan, &mut logits, token, position).unwrap();
    }
    let (made, memory) = (plan.counts().buffers, plan.device_memory());
    for position in 4..PAGE_LEN {
        token = step(&mut *plan, &mut logits, token, position).unwrap();
        assert_eq!((plan.counts().buffers, plan.device_memory()), (made, memory), "position {position}");
    }
    with_step(token, PAGE_LEN, |step| plan.decode(step, &[Draw::LARGEST], CONTEXT - PAGE_LEN, &mut |_| true))
        .unwrap();
    assert_eq!((plan.counts().buffers, plan.device_memory()), (made, memory));
    assert_eq!(plan.counts().steps as usize, CONTEXT);
}

#[test]
fn the_bank_is_used_to_its_end_and_no_further() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let model = model();
    let (mut one, mut other) = (plan(&gpu, &model), plan(&gpu, &model));
    let mut logits = vec![0.0; model.config.vocab];
    let (mut token, mut tokens) = (7, vec![]);
    for position in 0..CONTEXT {
        token = step(&mut *one, &mut logits, token, position).unwrap();
        tokens.push(token);
    }
    let error = step(&mut *one, &mut logits, token, CONTEXT).unwrap_err();
    assert!(matches!(error, Error::Step { .. }), "{error}");
    // That changed nothing: the last position gives what it gave.
    let last = tokens[CONTEXT - 2];
    assert_eq!(step(&mut *one, &mut logits, last, CONTEXT - 1).unwrap(), tokens[CONTEXT - 1]);
    // And the device fills it alone, with the same tokens.
    let mut found = vec![];
    let mut take = |chosen: &[u32]| {
        found.extend_from_slice(chosen);
        true
    };
    with_step(7, 0, |step| other.decode(step, &[Draw::LARGEST], CONTEXT, &mut take)).unwrap();
    assert_eq!(found, tokens);
}

#[test]
fn plans_give_back_what_they_took() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let model = model();
    // The first ones compile kernels; what these take stays with the device.
    let keep = plan(&gpu, &model);
    let mut logits = vec![0.0; model.config.vocab];
    let mut cycle = || {
        let mut plan = plan(&gpu, &model);
        step(&mut *plan, &mut logits, 7, 0).unwrap();
    };
    cycle();
    step(&mut *plan(&gpu, &model), &mut vec![0.0; model.config.vocab], 7, 0).unwrap();
    let before = keep.device_memory();
    assert!(before.is_some() || cfg!(target_vendor = "apple"), "wgpu counts memory on Vulkan");
    (0..5).for_each(|_| cycle());
    assert_eq!(keep.device_memory(), before);
}
