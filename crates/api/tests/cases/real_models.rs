//! Real models, where they are at hand (`cargo xtask fetch`).

use crate::common::{answer, finish, greedy, options};
use nibble_api::{Model, Options, Registry};

const FILES: [&str; 2] = ["SmolLM2-135M-Instruct.Q4_1.gguf", "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"];
const PROMPTS: [&str; 3] =
    ["The capital of France is", "def add(a, b):\n", "Grapes and plums are fruit; 12 leeks are"];

fn at_hand() -> Vec<(&'static str, Model)> {
    let open = |name| {
        let path = nibble_testkit::test_data_dir().join("models").join(name);
        if !path.exists() {
            eprintln!("SKIPPED: no {} (cargo xtask fetch)", path.display());
            return None;
        }
        Some((name, Model::open(&path, &Registry::default()).unwrap()))
    };
    FILES.into_iter().filter_map(open).collect()
}

#[test]
fn they_know_the_capital_of_france() {
    for (name, model) in at_hand() {
        let mut engine = model.start(&options()).unwrap();
        let text = answer(&mut engine, greedy(&model.encode(PROMPTS[0]).unwrap(), 4)).text();
        assert!(text.starts_with(" Paris"), "{name}: {text:?}");
    }
}

#[test]
fn threads_chunks_neighbours_and_caches_change_no_byte() {
    for (name, model) in at_hand() {
        let prompts = PROMPTS.map(|p| model.encode(p).unwrap());
        let mut alone = model.start(&options()).unwrap();
        let expected = prompts.each_ref().map(|p| answer(&mut alone, greedy(p, 4)).text());
        for (threads, chunk) in [(1, 7), (2, 1), (2, 64), (1, 512)] {
            let options =
                Options { threads: Some(threads), prefill_chunk: Some(chunk), sequences: 4, ..options() };
            let mut engine = model.start(&options).unwrap();
            for time in ["first", "second"] {
                let neighbour = engine.submit(greedy(&prompts[0][1..], 6)).unwrap();
                let ids = prompts.each_ref().map(|p| engine.submit(greedy(p, 4)).unwrap());
                let done = finish(&mut engine);
                assert_eq!(done[&neighbour].tokens.len(), 6);
                for (id, expected) in ids.iter().zip(&expected) {
                    let place = format!("{name}, {threads} threads, chunks of {chunk}, the {time} time");
                    assert_eq!(&done[id].text(), expected, "{place}");
                }
            }
        }
    }
}
