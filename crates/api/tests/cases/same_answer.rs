//! The same answer whatever it runs on and beside.

use crate::common::{Done, answer, distance, exact, finish, greedy, logits, open, options};
use nibble_api::{Activations, Engine, Model, Options, Request, SamplerParams};
use nibble_backend_cpu::Isa;
use nibble_testkit::tiny;
use std::{collections::BTreeSet, sync::Barrier};

/// The answers to two requests among two others.
fn among(engine: &mut Engine, requests: &[Request; 2]) -> [Done; 2] {
    engine.submit(greedy(&tiny::prompt(3, 40), 12)).unwrap();
    let first = engine.submit(requests[0].clone()).unwrap();
    engine.submit(greedy(&tiny::prompt(4, 9), 25)).unwrap();
    let second = engine.submit(requests[1].clone()).unwrap();
    let mut done = finish(engine);
    [first, second].map(|id| done.remove(&id).unwrap())
}

#[test]
fn threads_chunks_neighbours_caches_and_instruction_sets_change_nothing() {
    let sampling = SamplerParams { temperature: 1.2, seed: 5, ..SamplerParams::default() };
    let sampled = Request { sampling, ..greedy(&tiny::prompt(2, 33), 15) };
    let requests = [greedy(&tiny::prompt(1, 70), 15), sampled];
    for t in tiny::all() {
        let model = open(&t);
        let alone = requests.clone().map(|r| answer(&mut model.start(&options()).unwrap(), r));
        for done in &alone {
            assert!(done.tokens.iter().collect::<BTreeSet<_>>().len() > 5, "{}: {done:?}", t.name);
        }
        let check = |options: Options| {
            let mut engine = model.start(&Options { sequences: 4, ..options.clone() }).unwrap();
            for time in [1, 2] {
                for (found, alone) in among(&mut engine, &requests).iter().zip(&alone) {
                    let place = format!("{}, time {time}, {options:?}", t.name);
                    assert_eq!((&found.tokens, found.text()), (&alone.tokens, alone.text()), "{place}");
                    assert_eq!(found.usage.cached > 0, time > 1, "{place}");
                }
            }
        };
        for (threads, chunk) in [(1, 7), (2, 1), (2, 64), (3, 64), (1, 512)] {
            check(Options { threads: Some(threads), prefill_chunk: Some(chunk), ..options() });
        }
        for isa in Isa::available() {
            check(Options { isa: Some(isa.name().into()), ..options() });
        }
    }
}

#[test]
fn the_second_time_all_of_a_prompt_but_its_last_token_is_cached() {
    for t in tiny::all() {
        let model = open(&t);
        for chunk in [16, 64] {
            for len in [1, chunk - 1, chunk, chunk + 1] {
                let options = Options { prefill_chunk: Some(chunk), ..options() };
                let mut engine = model.start(&options).unwrap();
                let request = greedy(&tiny::prompt(6, len), 12);
                let [first, second] = [(); 2].map(|()| answer(&mut engine, request.clone()));
                let place = format!("{}: {len} tokens in chunks of {chunk}", t.name);
                assert_eq!((first.text(), first.tokens), (second.text(), second.tokens), "{place}");
                assert_eq!((first.usage.cached, second.usage.cached), (0, len - 1), "{place}");
            }
        }
    }
}

#[test]
fn the_cpu_agrees_with_the_reference() {
    let tokens = tiny::prompt(7, 40);
    for t in tiny::all() {
        let model = open(&t);
        let reference = logits(&model, &Options { device: "reference".into(), ..exact() }, &tokens);
        assert!(reference.iter().any(|l| l.abs() > 1.0), "{}: numbers of a usual size", t.name);
        let found = distance(&logits(&model, &exact(), &tokens), &reference);
        assert!(found < 1e-3, "{}: {found}", t.name);
        let auto = Options { activations: Activations::Auto, ..exact() };
        let found = distance(&logits(&model, &auto, &tokens), &reference);
        assert!(found < 0.5, "{}, weights and inputs as they come: {found}", t.name);
    }
}

#[test]
fn engines_on_one_model_run_beside_each_other() {
    fn together(model: &Model) -> Vec<Done> {
        let (start, requests) = (Barrier::new(2), [1, 2, 3].map(|seed| greedy(&tiny::prompt(seed, 50), 30)));
        let run = || {
            let mut engine = model.start(&options()).unwrap();
            start.wait();
            requests.iter().map(|r| answer(&mut engine, r.clone())).collect::<Vec<_>>()
        };
        std::thread::scope(|scope| {
            let other = scope.spawn(run);
            let mine = run();
            assert_eq!(mine, other.join().unwrap());
            mine
        })
    }
    for t in tiny::all() {
        let model = open(&t);
        let found = together(&model);
        let mut alone = model.start(&options()).unwrap();
        for (seed, found) in [1, 2, 3].into_iter().zip(found) {
            assert_eq!(answer(&mut alone, greedy(&tiny::prompt(seed, 50), 30)), found, "{}", t.name);
        }
    }
}

#[test]
fn an_engine_outlives_its_model_and_its_file() {
    for t in tiny::all() {
        let model = open(&t);
        let request = greedy(&tiny::prompt(8, 20), 10);
        let expected = answer(&mut model.start(&options()).unwrap(), request.clone());
        let mut engine = model.start(&options()).unwrap();
        drop(model);
        assert_eq!(answer(&mut engine, request), expected, "{}", t.name);
    }
}
