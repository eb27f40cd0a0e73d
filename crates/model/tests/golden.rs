//! Every golden model on the reference backend: logits, greedy tokens, and the same bits however a prompt is cut.

use nibble_backend::{Backend, KvType};
use nibble_backend_reference::Reference;
use nibble_model::Model;
use nibble_testkit::{
    golden::{self, Prompt, TOLERANCE},
    runner::{Runner, limits},
    shared_dir, workspace_root,
};
use std::path::{Path, PathBuf};

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

/// Folders in `dir` with a file `golden`, sorted.
fn folders(dir: &Path, golden: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = entries.filter(|path| path.join(golden).is_file()).collect();
    folders.sort();
    folders
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
    let folders = folders(&workspace_root().join("golden/models"), "golden.json");
    assert!(folders.len() > 10, "{folders:?}");
    for folder in folders {
        check(&folder, &folder.join("golden.json"), usize::MAX);
    }
}

/// A GGUF file has the golden logits of the model it was made from; a rounded one has its own.
#[test]
fn gguf_files_have_the_logits_of_their_models() {
    let root = workspace_root().join("golden");
    let mut checked = 0;
    for entry in std::fs::read_dir(root.join("gguf")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "gguf") {
            continue;
        }
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let (model, _encoding) = stem.rsplit_once('-').unwrap();
        let own = path.with_extension("golden.json");
        let golden = if own.is_file() { own } else { root.join("models").join(model).join("golden.json") };
        check(&path, &golden, 40);
        checked += 1;
    }
    assert!(checked > 8, "{checked}");
}

/// All 300 tokens of the longest prompt and all that follow take seconds a model in f64: faster backends run them.
#[test]
fn trained_models_have_the_logits_of_transformers() {
    let Some(shared) = shared_dir() else { return };
    for folder in folders(&shared.join("tiny"), "golden.json") {
        check(&folder, &folder.join("golden.json"), 57);
    }
}

#[test]
fn a_prompt_gives_the_same_bits_in_one_step_and_in_chunks() {
    for folder in folders(&workspace_root().join("golden/models"), "golden.json") {
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
