//! Options at their edges, vocabularies of another size, and requests in any order.

use crate::common::{answer, greedy, open, options};
use nibble_api::{Event, FinishReason, Kind, Options, RequestId};
use nibble_testkit::{Rng, tiny};
use std::collections::BTreeMap;

#[test]
fn options_at_their_edges_work_or_are_refused() {
    for t in tiny::all() {
        let model = open(&t);
        let request = greedy(&tiny::prompt(1, 20), 5);
        let expected = answer(&mut model.start(&options()).unwrap(), request.clone());
        for options in [
            Options { threads: Some(0), ..options() },
            Options { threads: Some(40), ..options() },
            Options { prefill_chunk: Some(0), ..options() },
            Options { prefill_chunk: Some(usize::MAX), ..options() },
            Options { sequences: 0, wanted: 0, ..options() },
            Options { wanted: usize::MAX, ..options() },
            Options { context: Some(24), ..options() },
        ] {
            let mut engine = model.start(&options).unwrap_or_else(|e| panic!("{options:?}: {e}"));
            assert_eq!(answer(&mut engine, request.clone()), expected, "{}, {options:?}", t.name);
        }
        for context in [0, 1, 19] {
            let mut engine = model.start(&Options { context: Some(context), ..options() }).unwrap();
            let refused = nibble_api::Error::from(engine.submit(request.clone()).unwrap_err());
            assert_eq!(refused.kind, Kind::Fit, "{}, a context of {context}: {refused}", t.name);
        }
        for wrong in [
            Options { device: "abacus".into(), ..options() },
            Options { isa: Some("abacus".into()), ..options() },
        ] {
            let Err(refused) = model.start(&wrong) else { panic!("{wrong:?}") };
            assert_eq!(refused.kind, Kind::Usage);
            assert!(refused.to_string().contains("abacus"), "{refused}");
        }
    }
}

#[test]
fn tokens_past_the_vocabulary_are_empty_text() {
    let mut t = tiny::llama();
    t.cut_vocabulary(270);
    let model = open(&t);
    let mut request = greedy(&model.encode("then").unwrap(), 12);
    request.sampling.logit_bias = vec![(300, 1e6)];
    let done = answer(&mut model.start(&options()).unwrap(), request);
    assert_eq!(done.tokens, [300; 12]);
    assert_eq!(done.text(), "");
}

#[test]
fn requests_in_any_order_say_what_they_say_alone() {
    for t in tiny::all() {
        let model = open(&t);
        let options = Options { context: Some(128), sequences: 3, prefill_chunk: Some(10), ..options() };
        // Starts that are shared up to within a page, at its border and past it.
        let base = tiny::prompt(1, 110);
        let prompts = [(20, 0), (64, 0), (64, 9), (90, 0), (65, 30), (1, 63), (100, 4)]
            .map(|(shared, own)| [&base[..shared], &tiny::prompt(own as u64, own)[..]].concat());
        let mut alone = BTreeMap::new();
        for prompt in &prompts {
            let done = answer(&mut model.start(&options).unwrap(), greedy(prompt, 9));
            alone.insert(prompt.clone(), done.tokens);
        }
        let (mut engine, mut rng) = (model.start(&options).unwrap(), Rng::new(9));
        let mut open: BTreeMap<RequestId, (Vec<u32>, usize, Vec<u32>)> = BTreeMap::new();
        let (mut whole, mut events) = (0, vec![]);
        for round in 0..250 {
            match rng.below(8) {
                0..2 if round < 200 => {
                    let (prompt, count) = (&prompts[rng.below(prompts.len())], rng.below(10));
                    let id = engine.submit(greedy(prompt, count)).unwrap();
                    open.insert(id, (prompt.clone(), count, vec![]));
                }
                2 => events.extend(open.keys().nth(rng.below(5)).and_then(|&id| engine.cancel(id))),
                _ => engine.step(&mut events).unwrap(),
            }
            while round == 249 && !engine.is_idle() {
                engine.step(&mut events).unwrap();
            }
            for event in events.drain(..) {
                match event {
                    Event::Token { request, token, .. } => open.get_mut(&request).unwrap().2.push(token),
                    Event::Finished { request, reason, usage, .. } => {
                        let (prompt, count, tokens) = open.remove(&request).unwrap();
                        let place = format!("{}, {} tokens, {usage:?}", t.name, prompt.len());
                        assert_eq!(tokens, alone[&prompt][..tokens.len()], "{place}");
                        assert!(tokens.len() == count || reason == FinishReason::Cancelled, "{place}");
                        whole += usize::from(reason != FinishReason::Cancelled && count > 0);
                    }
                    Event::Failed { request, error, .. } => panic!("{request:?}: {error}"),
                    Event::Prefill { .. } => {}
                }
            }
        }
        assert!(open.is_empty() && whole > 20, "{}: {whole} answers", t.name);
    }
}
