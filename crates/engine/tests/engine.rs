//! The engine's promises, on the reference backend.

mod common;

use common::{KINDS, Kind, Setup, answer, engine, finish, greedy, prompt};
use nibble_engine::{Error, Event, FinishReason, Request};
use nibble_sampler::SamplerParams;

#[test]
fn the_same_answer_for_every_chunk_neighbour_and_cache_state() {
    for kind in KINDS {
        let tokens = prompt(1, 150);
        let alone = answer(&mut engine(Setup { kind, ..Setup::default() }), greedy(&tokens, 30));
        assert_eq!(alone.tokens.len(), 30);
        for chunk in [1, 7, 64, 512] {
            let setup = Setup { kind, chunk, sequences: 4, pages: 32, ..Setup::default() };
            let mut engine = engine(setup);
            let id = engine.submit(greedy(&tokens, 30)).unwrap();
            for seed in 2..5 {
                engine.submit(greedy(&prompt(seed, 40 + seed as usize), 20)).unwrap();
            }
            let together = finish(&mut engine).remove(&id).unwrap();
            assert_eq!(together.tokens, alone.tokens, "{kind:?}, chunk {chunk}, with neighbours");
            let again = answer(&mut engine, greedy(&tokens, 30));
            assert_eq!(again.tokens, alone.tokens, "{kind:?}, chunk {chunk}, from the cache");
            assert!(again.usage.cached > 0, "{kind:?}, chunk {chunk}");
        }
    }
}

#[test]
fn the_second_time_all_of_a_prompt_but_its_last_token_is_cached() {
    for kind in KINDS {
        let chunk = 64;
        for len in [1, chunk - 1, chunk, chunk + 1] {
            let mut engine = engine(Setup { kind, chunk, ..Setup::default() });
            let tokens = prompt(3, len);
            let first = answer(&mut engine, greedy(&tokens, 12));
            let second = answer(&mut engine, greedy(&tokens, 12));
            assert_eq!(first.usage.cached, 0);
            assert_eq!(second.usage.cached, len - 1, "{kind:?}, {len} tokens");
            assert_eq!(first.tokens, second.tokens, "{kind:?}, {len} tokens");
        }
    }
}

#[test]
fn a_conversation_goes_on_from_where_it_was() {
    for kind in [Kind::Attention, Kind::Hybrid] {
        let mut warm = engine(Setup { kind, ..Setup::default() });
        let mut tokens = prompt(4, 70);
        let first = answer(&mut warm, greedy(&tokens, 25));
        tokens.extend(&first.tokens);
        let whole = tokens.len() - 1;
        tokens.extend(prompt(5, 20));
        let second = answer(&mut warm, greedy(&tokens, 10));
        // The last token of the answer was never run.
        assert_eq!(second.usage.cached, whole, "{kind:?}");
        let cold = answer(&mut engine(Setup { kind, ..Setup::default() }), greedy(&tokens, 10));
        assert_eq!(second.tokens, cold.tokens, "{kind:?}");
    }
}

#[test]
fn prompts_that_share_a_start_share_its_pages_but_not_more() {
    for kind in [Kind::Attention, Kind::Window, Kind::Hybrid] {
        let mut shared = engine(Setup { kind, ..Setup::default() });
        let head = prompt(6, 100);
        let with = |seed| [head.clone(), prompt(seed, 30)].concat();
        answer(&mut shared, greedy(&with(1), 5));
        let other = answer(&mut shared, greedy(&with(2), 5));
        if kind != Kind::Hybrid {
            assert_eq!(other.usage.cached, 100, "{kind:?}");
        }
        let cold = answer(&mut engine(Setup { kind, ..Setup::default() }), greedy(&with(2), 5));
        assert_eq!(other.tokens, cold.tokens, "{kind:?}");
    }
}

#[test]
fn a_prompt_that_does_not_fit_the_context_is_refused_with_both_figures() {
    let mut engine = engine(Setup { context: 64, pages: 1, ..Setup::default() });
    for len in [63, 64] {
        let done = answer(&mut engine, Request { max_tokens: None, ..greedy(&prompt(7, len), 0) });
        assert_eq!(done.tokens.len(), 65 - len, "the last token needs no room");
        assert_eq!(done.reason, Some(FinishReason::Length));
    }
    for len in [65, 500] {
        let error = engine.submit(greedy(&prompt(7, len), 1)).unwrap_err();
        assert!(matches!(error, Error::Context { needed, available: 64 } if needed == len), "{error}");
    }
    assert!(matches!(engine.submit(greedy(&[], 1)), Err(Error::EmptyPrompt)));
    assert!(matches!(engine.submit(greedy(&[61], 1)), Err(Error::Token { token: 61, vocab: 61 })));
}

#[test]
fn more_pages_than_the_bank_has_are_refused_and_fewer_wait_their_turn() {
    let mut engine = engine(Setup { sequences: 4, pages: 3, ..Setup::default() });
    let refused = engine.submit(greedy(&prompt(8, 180), 64)).unwrap_err();
    assert!(matches!(refused, Error::Pages { needed: 4, available: 3 }), "{refused}");
    let ids: Vec<_> = (0..4).map(|i| engine.submit(greedy(&prompt(i, 100), 20)).unwrap()).collect();
    let together = finish(&mut engine);
    for (i, id) in ids.iter().enumerate() {
        let alone = answer(&mut common::engine(Setup::default()), greedy(&prompt(i as u64, 100), 20));
        assert_eq!(together[id].tokens, alone.tokens);
    }
}

#[test]
fn seeded_sampling_does_not_depend_on_neighbours() {
    let sampling = SamplerParams { temperature: 1.5, seed: 9, ..SamplerParams::default() };
    let request = || Request { sampling: sampling.clone(), ..greedy(&prompt(9, 20), 40) };
    let alone = answer(&mut engine(Setup::default()), request());
    let mut crowd = engine(Setup { sequences: 3, chunk: 5, ..Setup::default() });
    crowd.submit(greedy(&prompt(1, 30), 10)).unwrap();
    let id = crowd.submit(request()).unwrap();
    crowd.submit(greedy(&prompt(2, 50), 30)).unwrap();
    assert_eq!(finish(&mut crowd)[&id].tokens, alone.tokens);
    let other = Request { sampling: SamplerParams { seed: 10, ..sampling.clone() }, ..request() };
    assert_ne!(answer(&mut engine(Setup::default()), other).tokens, alone.tokens);
}

#[test]
fn a_cancelled_request_leaves_what_it_ran_to_others() {
    let mut engine = engine(Setup { chunk: 16, ..Setup::default() });
    let tokens = prompt(10, 100);
    let id = engine.submit(greedy(&tokens, 50)).unwrap();
    let mut events = vec![];
    for _ in 0..4 {
        engine.step(&mut events).unwrap();
    }
    let cancelled = engine.cancel(id);
    assert!(matches!(cancelled, Some(Event::Finished { reason: FinishReason::Cancelled, .. })));
    assert!(engine.is_idle() && engine.cancel(id).is_none());
    let done = answer(&mut engine, greedy(&tokens, 5));
    assert_eq!(done.usage.cached, 64);
}

#[test]
fn stop_tokens_end_an_answer_and_zero_tokens_only_read_the_prompt() {
    let mut engine = engine(Setup::default());
    let free = answer(&mut engine, greedy(&prompt(11, 30), 20));
    let stop = free.tokens[5];
    let at = free.tokens.iter().position(|&t| t == stop).unwrap();
    let stopped = answer(&mut engine, Request { stop_tokens: vec![stop], ..greedy(&prompt(11, 30), 20) });
    assert_eq!(stopped.tokens, free.tokens[..=at]);
    assert_eq!(stopped.reason, Some(FinishReason::Stop));
    let none = answer(&mut engine, greedy(&prompt(12, 30), 0));
    assert_eq!((none.tokens.len(), none.reason), (0, Some(FinishReason::Length)));
    let one = answer(&mut engine, greedy(&prompt(12, 30), 1));
    assert_eq!((one.usage.cached, one.usage.generated), (29, 1));
}

#[test]
fn scoring_gives_every_position_and_disturbs_nothing() {
    let mut engine = engine(Setup { chunk: 7, sequences: 3, ..Setup::default() });
    let tokens = prompt(13, 90);
    let first = answer(&mut engine, greedy(&tokens, 1));
    let mut rows = vec![];
    engine.score(&tokens, |position, logits| rows.push((position, logits.to_vec()))).unwrap();
    assert_eq!(rows.iter().map(|r| r.0).collect::<Vec<_>>(), (0..90).collect::<Vec<_>>());
    let last = &rows[89].1;
    let best = (0..last.len()).max_by(|&a, &b| last[a].total_cmp(&last[b])).unwrap();
    assert_eq!(first.tokens, [best as u32]);
    let again = answer(&mut engine, greedy(&tokens, 1));
    assert_eq!(again.usage.cached, 89);
}
