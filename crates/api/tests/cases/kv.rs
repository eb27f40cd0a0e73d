//! Keys and values: how they are kept, how many fit.

use crate::common::{answer, distance, exact, greedy, logits, open, options};
use nibble_api::{Kind, KvType, Options, Request};
use nibble_testkit::tiny;

#[test]
fn every_kind_of_keys_and_values_is_finite_close_and_indifferent_to_chunks() {
    let tokens = tiny::prompt(1, 13);
    for t in tiny::all() {
        let model = open(&t);
        let run = |kv, chunk| {
            logits(&model, &Options { kv, prefill_chunk: Some(chunk), wanted: chunk, ..exact() }, &tokens)
        };
        let expected = run(KvType::F32, 13);
        for (name, kv) in KvType::ALL {
            let whole = run(kv, 64);
            let bound = match kv {
                KvType::F32 => 0.0,
                KvType::F16 => 0.005,
                KvType::Q8_0 => 0.05,
                KvType::Q4_0 => 1.0,
            };
            let found = distance(&whole, &expected);
            assert!(found <= bound, "{}, {name}: {found} from f32", t.name);
            for chunk in [1, 4, 7] {
                assert!(run(kv, chunk) == whole, "{}, {name}: chunks of {chunk}", t.name);
            }
        }
    }
}

#[test]
fn prompts_beyond_the_context_are_refused_with_both_figures_and_never_cut() {
    for t in tiny::all() {
        let model = open(&t);
        let mut engine = model.start(&Options { context: Some(64), ..options() }).unwrap();
        for len in [63, 64] {
            let done = answer(&mut engine, Request { max_tokens: None, ..greedy(&tiny::prompt(2, len), 0) });
            assert_eq!((done.usage.prompt, done.tokens.len()), (len, 65 - len), "{}", t.name);
        }
        for len in [65, 500] {
            let refused = engine.submit(greedy(&tiny::prompt(2, len), 1)).unwrap_err();
            let refused = nibble_api::Error::from(refused);
            assert_eq!(refused.kind, Kind::Fit);
            let words = refused.to_string();
            assert!(words.contains(&len.to_string()) && words.contains("64"), "{words}");
            assert!(engine.is_idle());
            let refused = engine.score(&tiny::prompt(2, len), |_, _| panic!("a row")).unwrap_err();
            assert_eq!(nibble_api::Error::from(refused).kind, Kind::Fit);
        }
    }
}
