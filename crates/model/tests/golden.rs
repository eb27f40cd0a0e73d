//! Every golden model on the reference backend: logits, greedy tokens, and the same bits however a prompt is cut.

use nibble_backend::{Backend, KvType};
use nibble_backend_reference::Reference;
use nibble_model::Model;
use nibble_testkit::{
    golden::{self, Prompt, TOLERANCE},
    runner::{Runner, limits},
    shared_dir,
};
use std::path::Path;

fn open(path: &Path) -> Model {
    let checkpoint = nibble_format::open(path, &nibble_quant::Registry::default()).unwrap();
    nibble_model::build(&checkpoint).unwrap()
}

fn runner(model: &Model, prompts: &[Prompt]) -> Runner {
    let rows = prompts.iter().map(|p| p.ids.len()).max().unwrap();
    let context = prompts.iter().map(|p| p.ids.len() + p.greedy.len()).max().unwrap();
    let plan = Reference.compile(&model.graph, &limits(rows, context, KvType::F32)).unwrap();
    Runner::new(plan, model.config.vocab)
}

/// Compares up to `longest` tokens of each prompt and the first tokens that follow.
fn check(path: &Path, golden: &Path, longest: usize) {
    let (model, prompts) = (open(path), golden::read(golden));
    let mut prompts: Vec<_> = prompts.iter().map(|p| p.cut(longest)).collect();
    prompts.iter_mut().for_each(|p| p.greedy.truncate(12));
    let mut runner = runner(&model, &prompts);
    let worst = prompts.iter().map(|p| p.check(&mut runner, TOLERANCE).max).fold(0.0, f32::max);
    eprintln!("{}: largest difference {worst:.1e}", path.display());
}

#[test]
fn golden_models_have_the_logits_of_transformers() {
    for folder in golden::models() {
        check(&folder, &folder.join("golden.json"), usize::MAX);
    }
}

#[test]
fn packed_directories_have_the_logits_of_their_unpacked_numbers() {
    for folder in golden::containers() {
        check(&folder, &folder.join("golden.json"), usize::MAX);
    }
}

#[test]
fn gguf_files_have_the_logits_of_their_models() {
    for (path, golden) in golden::gguf_files() {
        check(&path, &golden, 40);
    }
}

/// All 300 tokens of the longest prompt and all that follow take seconds a model in f64: faster backends run them.
#[test]
fn trained_models_have_the_logits_of_transformers() {
    let Some(shared) = shared_dir() else { return };
    for folder in golden::folders(&shared.join("tiny")) {
        check(&folder, &folder.join("golden.json"), 57);
    }
}

#[test]
fn a_prompt_gives_the_same_bits_in_one_step_and_in_chunks() {
    for folder in golden::models() {
        let (model, prompts) = (open(&folder), golden::read(&folder.join("golden.json")));
        let mut runner = runner(&model, &prompts);
        let ids = &prompts.iter().max_by_key(|p| p.ids.len()).unwrap().ids;
        let mut bits = |chunk: usize| {
            runner.start(ids.len());
            runner.feed(ids, chunk).into_iter().flatten().map(f32::to_bits).collect::<Vec<_>>()
        };
        let whole = bits(ids.len());
        for chunk in [1, 7, 64] {
            assert!(bits(chunk) == whole, "{} in chunks of {chunk}", folder.display());
        }
    }
}
