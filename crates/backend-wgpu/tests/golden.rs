//! Every golden model on the GPU: logits and greedy tokens of transformers.

mod common;

use common::{gpu, open};
use nibble_backend::{Activations, Backend, KvType, Limits};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::{Gpu, GpuOptions};
use nibble_testkit::{
    golden::{self, TOLERANCE},
    runner::{Runner, limits},
    shared_dir,
};
use std::path::Path;

/// Compares all tokens of each prompt and all that follow; then the first logits as the device is fastest, loosely.
fn check(gpu: &Gpu, path: &Path, golden: &Path) {
    let (model, prompts) = (open(path), golden::read(golden));
    let rows = prompts.iter().map(|p| p.ids.len()).max().unwrap();
    let context = prompts.iter().map(|p| p.ids.len() + p.greedy.len()).max().unwrap();
    let runner = |activations| {
        let limits = Limits { activations, check_finite: false, ..limits(rows, context, KvType::F32) };
        Runner::new(gpu.compile(&model.graph, &limits).unwrap(), model.config.vocab)
    };
    let mut exact = runner(Activations::F32);
    let worst = prompts.iter().map(|p| p.check(&mut exact, TOLERANCE).max).fold(0.0, f32::max);
    let mut rounded = runner(Activations::Auto);
    let mut loose = 0f32;
    for p in &prompts {
        for len in [60, 5] {
            rounded.start(p.ids.len()); // of the whole prompt: rotations may depend on it
            let p = p.cut(len);
            loose = loose.max(p.difference(&rounded.feed(&p.ids, p.ids.len())).max);
        }
    }
    eprintln!("{}: largest difference {worst:.1e}, as fast as it can {loose:.1e}", path.display());
    assert!(loose < 1.5, "{}: {loose}", path.display());
}

#[test]
fn golden_models_have_the_logits_of_transformers() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for folder in golden::models() {
        check(&gpu, &folder, &folder.join("golden.json"));
    }
}

/// A number on the edge between two codes may fall to either side, and its step is what is off then: some of 16 steps.
#[test]
fn golden_models_in_blocks_have_the_logits_of_the_reference() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for (i, folder) in golden::models().into_iter().step_by(2).enumerate() {
        let (kv, bound) = [(KvType::Q8_0, 5e-3), (KvType::Q4_0, 5e-2)][i % 2];
        let (model, prompts) = (open(&folder), golden::read(&folder.join("golden.json")));
        let prompt = prompts.iter().max_by_key(|p| p.ids.len()).unwrap().cut(40);
        let run = |backend: &dyn Backend| {
            let limits = Limits { check_finite: false, ..limits(prompt.ids.len(), 64, kv) };
            let mut runner = Runner::new(backend.compile(&model.graph, &limits).unwrap(), model.config.vocab);
            runner.start(prompt.ids.len());
            // Many rows together, then one by one.
            let (first, rest) = prompt.ids.split_at(prompt.ids.len() / 2);
            [runner.feed(first, first.len()), runner.feed(rest, 1)].concat().concat()
        };
        let (found, expected) = (run(&gpu), run(&Reference));
        let worst = found.iter().zip(&expected).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
        eprintln!("{}, {kv}: largest difference {worst:.1e}", folder.display());
        assert!(worst <= bound, "{}, {kv}: {worst}", folder.display());
    }
}

#[test]
fn gguf_files_have_the_logits_of_their_models() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    for (path, golden) in golden::gguf_files() {
        check(&gpu, &path, &golden);
    }
}

/// Rotated tiles and eight-bit floats, which lie on the device as in no GGUF file.
#[test]
fn packed_directories_have_the_logits_of_their_numbers() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let own = ["exl3-2-mul1", "exl3-3-mcg", "fp8-blocks"];
    let folders: Vec<_> =
        golden::containers().into_iter().filter(|path| own.iter().any(|own| path.ends_with(own))).collect();
    assert_eq!(folders.len(), own.len(), "{folders:?}");
    for folder in folders {
        check(&gpu, &folder, &folder.join("golden.json"));
    }
}

#[test]
fn trained_models_have_the_logits_of_transformers() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let Some(shared) = shared_dir() else { return };
    for folder in golden::folders(&shared.join("tiny")) {
        check(&gpu, &folder, &folder.join("golden.json"));
    }
}
