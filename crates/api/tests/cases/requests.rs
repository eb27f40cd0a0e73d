//! Requests that are refused, given up or stopped, and the text that comes of them.

use crate::common::{answer, finish, greedy, open, options};
use nibble_api::{Event, FinishReason, Kind, Message, Options, Remedy, Request};
use nibble_testkit::{Rng, tiny};

fn ids(text: &str) -> Vec<u32> {
    text.bytes().map(tiny::byte).collect()
}

/// What a model says after `start` that says `chain` and then ends.
fn said(chain: &[u32], stop: &[&str], max_tokens: usize) -> (Vec<String>, FinishReason) {
    let start = tiny::byte(b'$');
    let all = [&[start], chain, &[tiny::EOS]].concat();
    let model = open(&tiny::saying(&all));
    let request = Request {
        stop: stop.iter().map(|s| (*s).into()).collect(),
        stop_tokens: model.stop_tokens(),
        ..greedy(&[start], max_tokens)
    };
    let done = answer(&mut model.start(&options()).unwrap(), request);
    assert_eq!(done.tokens, all[1..=done.tokens.len()], "the model says what it is made to say");
    (done.deltas, done.reason.unwrap())
}

#[test]
fn requests_that_make_no_sense_are_refused_and_leave_nothing() {
    let model = open(&tiny::llama());
    let mut engine = model.start(&options()).unwrap();
    let good = answer(&mut engine, greedy(&tiny::prompt(1, 5), 5));
    let mut sampling = greedy(&[5], 5);
    sampling.sampling.top_p = -1.0;
    let mut bias = greedy(&[5], 5);
    bias.sampling.logit_bias = vec![(320, 1.0)];
    for (request, words) in [
        (greedy(&[], 5), "empty"),
        (greedy(&[5, 320, 6], 5), "320"),
        (greedy(&[u32::MAX], 5), "4294967295"),
        (sampling, "top"),
        (bias, "320"),
    ] {
        let refused = nibble_api::Error::from(engine.submit(request).unwrap_err());
        assert_eq!(refused.kind, Kind::Usage, "{refused}");
        assert!(refused.to_string().contains(words), "{refused}");
        assert!(engine.is_idle());
    }
    assert_eq!(answer(&mut engine, greedy(&tiny::prompt(1, 5), 5)).tokens, good.tokens);
    let refused = model.encode_chat(&[Message::new("user", "hello")]).unwrap_err();
    assert!(refused.to_string().contains("no chat template"), "{refused}");
    assert_eq!(refused.remedy, Some(Remedy::PlainText));
    let long = nibble_api::Error::from(engine.submit(greedy(&[5; 257], 5)).unwrap_err());
    assert_eq!((long.kind, long.remedy), (Kind::Fit, Some(Remedy::Context)));
    let small = Options { memory_budget: Some(1), ..options() };
    let Err(small) = model.start(&small) else { panic!("a model in one byte") };
    assert_eq!((small.kind, small.remedy), (Kind::Fit, Some(Remedy::Memory)));
    for error in [refused, long, small] {
        assert!(!error.to_string().contains("--"), "flags are words of the command: {error}");
    }
}

#[test]
fn a_cancelled_request_ends_at_once_waiting_or_running_and_others_go_on() {
    for t in tiny::all() {
        let model = open(&t);
        let options = Options { sequences: 2, prefill_chunk: Some(16), ..options() };
        let requests = [1, 2, 3, 4].map(|seed| greedy(&tiny::prompt(seed, 40), 20));
        let mut engine = model.start(&options).unwrap();
        let ids = requests.clone().map(|r| engine.submit(r).unwrap());
        let mut events = vec![];
        for _ in 0..5 {
            engine.step(&mut events).unwrap();
        }
        for id in [ids[0], ids[3]] {
            let event = engine.cancel(id);
            let cancelled = |e: &Event| matches!(e, Event::Finished { reason: FinishReason::Cancelled, .. });
            assert!(event.as_ref().is_some_and(cancelled), "{}: {event:?}", t.name);
            assert_eq!(engine.cancel(id), None, "only once");
        }
        let rest = finish(&mut engine);
        assert_eq!(rest.keys().collect::<Vec<_>>(), [&ids[1], &ids[2]], "{}", t.name);
        let mut alone = model.start(&options).unwrap();
        let expected = answer(&mut alone, requests[2].clone());
        assert_eq!(rest[&ids[2]].tokens, expected.tokens, "{}", t.name);
        let again = answer(&mut engine, requests[0].clone());
        assert_eq!(again.tokens, answer(&mut alone, requests[0].clone()).tokens, "{}", t.name);
    }
}

#[test]
fn nothing_of_a_stop_string_over_tokens_is_ever_streamed_and_all_of_a_near_miss_is() {
    let text = |chain, stop: &[&str]| {
        let (deltas, reason) = said(&ids(chain), stop, 20);
        (deltas.concat(), reason)
    };
    assert_eq!(text("END", &["END"]), (String::new(), FinishReason::Stop));
    assert_eq!(text("ENX", &["END"]), ("ENX".into(), FinishReason::Stop));
    assert_eq!(text("abENDcd", &["END"]), ("ab".into(), FinishReason::Stop));
    assert_eq!(text("abEN", &["END"]), ("abEN".into(), FinishReason::Stop), "what was held back comes last");
    assert_eq!(text("abEND", &["END", "b"]), ("a".into(), FinishReason::Stop), "the first to be complete");
    let (deltas, reason) = said(&ids("ENDX"), &["END"], 2);
    assert_eq!((deltas, reason), (vec![String::new(), String::new(), "EN".into()], FinishReason::Length));
}

#[test]
fn any_part_of_an_answer_stops_it_there() {
    let model = open(&tiny::experts());
    let mut engine = model.start(&options()).unwrap();
    let mut rng = Rng::new(3);
    for seed in 0..6 {
        let mut free = greedy(&tiny::prompt(seed, 12), 40);
        free.sampling.temperature = 1.5;
        free.sampling.seed = seed;
        let text = answer(&mut engine, free.clone()).text();
        let chars: Vec<char> = text.chars().collect();
        for _ in 0..8 {
            let from = rng.below(chars.len() - 4);
            let stop: String = chars[from..from + 1 + rng.below(4)].iter().collect();
            let stopped = answer(&mut engine, Request { stop: vec![stop.clone()], ..free.clone() });
            assert_eq!(stopped.text(), text[..text.find(&stop).unwrap()], "stop {stop:?} in {text:?}");
            assert_eq!(stopped.reason, Some(FinishReason::Stop));
        }
    }
}

#[test]
fn a_character_over_two_tokens_comes_whole_and_half_of_it_once() {
    let [first, second] = tiny::EMOJI;
    let chain = [tiny::byte(b'a'), first, second, tiny::byte(b'b')];
    let (deltas, _) = said(&chain, &[], 20);
    assert_eq!(deltas[..4], ["a", "", "\u{1F600}", "b"]);
    assert_eq!(deltas.concat(), "a\u{1F600}b");
    let (deltas, reason) = said(&chain, &[], 2);
    assert_eq!((deltas.concat(), reason), ("a\u{FFFD}".into(), FinishReason::Length));
    let (deltas, reason) = said(&chain, &["a\u{FFFD}"], 2);
    assert_eq!(
        (deltas.concat(), reason),
        (String::new(), FinishReason::Stop),
        "what it is worth in the end counts"
    );
    let (deltas, _) = said(&[tiny::byte(b'a'), first, tiny::byte(b'b')], &[], 20);
    assert_eq!(deltas.concat(), "a\u{FFFD}b");
    let (deltas, _) = said(&chain, &["\u{1F600}b"], 20);
    assert_eq!(deltas.concat(), "a", "a stop string may begin with it");
}

#[test]
fn streamed_text_is_that_of_all_tokens_at_once() {
    for t in tiny::all() {
        let model = open(&t);
        let tokenizer = model.tokenizer().unwrap();
        let mut engine = model.start(&options()).unwrap();
        for seed in 0..5 {
            let mut request = greedy(&model.encode("the heart of it").unwrap(), 60);
            request.sampling.temperature = 2.0;
            request.sampling.seed = seed;
            request.sampling.logit_bias = (0..3).map(|special| (special, -100.0)).collect();
            let done = answer(&mut engine, request);
            let bytes: Vec<u8> = done.tokens.iter().flat_map(|&id| tokenizer.piece(id).to_vec()).collect();
            assert_eq!(done.text(), String::from_utf8_lossy(&bytes), "{}", t.name);
            assert_eq!(done.tokens.len(), 60);
        }
    }
}
