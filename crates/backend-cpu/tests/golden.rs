//! Every golden model on the CPU: logits and greedy tokens of transformers, in floats and in integers.

mod common;

use common::{cpu, open};
use nibble_backend::{Activations, Backend, KvType};
use nibble_model::Model;
use nibble_testkit::{
    golden::{self, Prompt, TOLERANCE},
    runner::{Runner, limits},
    shared_dir,
};
use std::path::Path;

fn runner(model: &Model, prompts: &[Prompt], activations: Activations) -> Runner {
    let rows = prompts.iter().map(|p| p.ids.len()).max().unwrap();
    let context = prompts.iter().map(|p| p.ids.len() + p.greedy.len()).max().unwrap();
    let limits = nibble_backend::Limits { activations, ..limits(rows, context, KvType::F32) };
    Runner::new(cpu(2).compile(&model.graph, &limits).unwrap(), model.config.vocab)
}

/// Compares all tokens of each prompt and all that follow; then the first logits with rounded activations: those of two
/// integers each closely, those of one loosely.
fn check(path: &Path, golden: &Path) {
    let (model, prompts) = (open(path), golden::read(golden));
    let mut exact = runner(&model, &prompts, Activations::F32);
    let worst = prompts.iter().map(|p| p.check(&mut exact, TOLERANCE).max).fold(0.0, f32::max);
    let [close, loose] = [Activations::I16, Activations::Auto].map(|activations| {
        let mut rounded = runner(&model, &prompts, activations);
        let difference = |p: &Prompt| {
            rounded.start(p.ids.len()); // of the whole prompt: rotations may depend on it
            let p = p.cut(60);
            p.difference(&rounded.feed(&p.ids, p.ids.len())).max
        };
        prompts.iter().map(difference).fold(0.0, f32::max)
    });
    eprintln!(
        "{}: largest difference {worst:.1e}, rounded twice {close:.1e}, once {loose:.1e}",
        path.display()
    );
    assert!(close < 0.02 && loose < 1.5, "{}: {close} and {loose}", path.display());
}

#[test]
fn golden_models_have_the_logits_of_transformers() {
    for folder in golden::models() {
        check(&folder, &folder.join("golden.json"));
    }
}

#[test]
fn packed_directories_have_the_logits_of_their_unpacked_numbers() {
    for folder in golden::containers() {
        check(&folder, &folder.join("golden.json"));
    }
}

#[test]
fn gguf_files_have_the_logits_of_their_models() {
    for (path, golden) in golden::gguf_files() {
        check(&path, &golden);
    }
}

#[test]
fn trained_models_have_the_logits_of_transformers() {
    let Some(shared) = shared_dir() else { return };
    for folder in golden::folders(&shared.join("tiny")) {
        check(&folder, &folder.join("golden.json"));
    }
}
