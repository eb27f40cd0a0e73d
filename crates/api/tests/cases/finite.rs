//! Damaged weights: what is checked names the first op that shows them, what is not refuses their logits.

use crate::common::{answer, greedy, open, options};
use nibble_api::{Error, Event, Kind, Options, Remedy, Request, RequestId, SamplerParams, present};
use nibble_testkit::tiny::{self, Tiny};

fn on(device: &str, check_finite: bool) -> Options {
    Options { device: device.into(), check_finite, ..options() }
}

/// What a prompt meets in a model with one number replaced.
fn failure(mut tiny: Tiny, options: &Options, (weight, at, number): (&str, usize, f32)) -> Error {
    tiny.damage(weight, at, number);
    let mut engine = open(&tiny).start(options).unwrap();
    engine.submit(greedy(&tiny::prompt(1, 6), 2)).unwrap();
    let mut events = vec![];
    match engine.step(&mut events) {
        Err(error) => error.into(),
        Ok(()) => match events.pop() {
            Some(Event::Failed { error, .. }) => error.into(),
            event => panic!("{weight}: {event:?}"),
        },
    }
}

#[test]
fn every_device_names_layer_op_row_and_column_of_the_first_number_that_is_not_finite() {
    // Row 3 of 256 columns, so column 3 of the product; of a vector, column 3 of every row.
    let matrix = 3 * 256 + 70;
    let third = tiny::prompt(1, 6)[2] as usize * 256 + 5;
    let cases = [
        (tiny::llama(), ("blk.1.ffn_up.weight", matrix, f32::NAN), "layer 1: matmul (ffn.up)", (0, 3)),
        (tiny::llama(), ("blk.1.ffn_gate.weight", matrix, f32::NAN), "layer 1: matmul (ffn.gate)", (0, 3)),
        (tiny::llama(), ("blk.0.attn_k.weight", matrix, f32::NAN), "layer 0: matmul (attn.k)", (0, 3)),
        (
            tiny::llama(),
            ("blk.1.attn_norm.weight", 3, f32::INFINITY),
            "layer 1: rms_norm (attn.norm)",
            (0, 3),
        ),
        (tiny::llama(), ("token_embd.weight", third, f32::NEG_INFINITY), "embed (embed)", (2, 5)),
        (tiny::llama(), ("output.weight", matrix, f32::NAN), "matmul (head)", (0, 3)),
        (tiny::hybrid(), ("blk.2.ssm_a", 3, f32::NAN), "layer 2: ", (0, 3)),
        (tiny::window(), ("blk.1.ffn_gate.weight", matrix, f32::NAN), "layer 1: matmul (ffn.gate)", (0, 3)),
        (tiny::experts(), ("blk.0.ffn_gate_inp.weight", matrix, f32::NAN), "layer 0: matmul (", (0, 3)),
    ];
    for device in present() {
        for (tiny, damage, place, (row, column)) in cases.clone() {
            let what = format!("{} on {}", damage.0, device.name);
            let error = failure(tiny, &on(device.name, true), damage);
            let words = error.to_string();
            assert_eq!(error.kind, Kind::Run, "{what}");
            assert!(words.starts_with(place), "{what}: {words}");
            assert!(words.contains(&format!("row {row}, column {column}")), "{what}: {words}");
        }
    }
}

#[test]
fn without_the_check_the_logits_are_refused_and_where_to_look_is_said() {
    for device in present() {
        let damage = ("blk.1.ffn_up.weight", 70, f32::NAN);
        let error = failure(tiny::llama(), &on(device.name, false), damage);
        assert_eq!(error.kind, Kind::Run);
        assert!(error.to_string().contains("NaN for token 0"), "{error}");
        assert_eq!(error.remedy, Some(Remedy::CheckFinite));
        let mut tiny = tiny::llama();
        tiny.damage(damage.0, damage.1, damage.2);
        let mut engine = open(&tiny).start(&on(device.name, false)).unwrap();
        let error = Error::from(engine.score(&tiny::prompt(1, 6), |_, _| ()).unwrap_err());
        assert!(error.to_string().contains("position 0: expected finite numbers, found NaN"), "{error}");
    }
}

/// The device goes on alone, by the largest logit and by draws; with penalties the host chooses.
#[test]
fn every_way_to_choose_tokens_notices_damage_at_the_same_place() {
    let chain = [70, 80, 90, 100, 110, 120];
    let kept = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    let drawn = SamplerParams { temperature: 0.01, ..SamplerParams::default() };
    let penalized = SamplerParams { repeat_penalty: 1.01, repeat_last_n: 64, ..drawn.clone() };
    for device in present() {
        let mut tiny = tiny::saying(&chain);
        tiny.damage("token_embd.weight", 110 * 256 + 5, f32::INFINITY);
        let model = open(&tiny);
        let mut engine = model.start(&on(device.name, false)).unwrap();
        for (how, sampling) in [("largest", &kept), ("drawn", &drawn), ("penalized", &penalized)] {
            let request = |prompt, max| Request { sampling: sampling.clone(), ..greedy(prompt, max) };
            engine.submit(request(&chain[..1], 20)).unwrap();
            let mut events = vec![];
            while !engine.is_idle() {
                engine.step(&mut events).unwrap();
            }
            let (what, last) = (format!("{how} on {}", device.name), events.pop());
            let tokens: Vec<u32> = events
                .iter()
                .filter_map(|event| match event {
                    Event::Token { token, .. } => Some(*token),
                    _ => None,
                })
                .collect();
            assert_eq!(tokens, chain[1..5], "{what}");
            let Some(Event::Failed { error, .. }) = last else { panic!("{what}: {last:?}") };
            let words = error.to_string();
            assert!(words.starts_with("position 4: logits: expected "), "{what}: {words}");
            let next = answer(&mut engine, request(&chain[..1], 3));
            assert_eq!(next.tokens, chain[1..4], "{what}: the engine goes on");
        }
    }
}

#[test]
fn a_whole_model_passes_and_checking_changes_no_token() {
    for device in present() {
        for tiny in tiny::all() {
            let model = open(&tiny);
            let request = greedy(&tiny::prompt(2, 30), 5);
            let [checked, unchecked] = [true, false]
                .map(|check| answer(&mut model.start(&on(device.name, check)).unwrap(), request.clone()));
            assert_eq!(checked, unchecked, "{} on {}", tiny.name, device.name);
        }
    }
}

/// Requests, and how the answer to each ended: its tokens, or nothing if it failed.
fn together(options: &Options, tiny: &Tiny, requests: &[Request]) -> Vec<Option<Vec<u32>>> {
    let mut engine = open(tiny).start(options).unwrap();
    let ids: Vec<RequestId> = requests.iter().map(|r| engine.submit(r.clone()).unwrap()).collect();
    let mut answers: Vec<Option<Vec<u32>>> = vec![Some(vec![]); ids.len()];
    let mut events = vec![];
    while !engine.is_idle() {
        engine.step(&mut events).unwrap();
    }
    for event in events {
        match event {
            Event::Token { request, token, .. } => {
                let at = ids.iter().position(|id| *id == request).unwrap();
                answers[at].as_mut().unwrap().push(token);
            }
            Event::Failed { request, .. } => {
                answers[ids.iter().position(|id| *id == request).unwrap()] = None
            }
            Event::Prefill { .. } | Event::Finished { .. } => {}
        }
    }
    answers
}

#[test]
fn only_the_sequence_with_damaged_logits_ends_and_nobody_finds_its_pages() {
    for device in present() {
        for mut tiny in tiny::all() {
            let options = Options { sequences: 3, ..on(device.name, false) };
            let poison = tiny::prompt(9, 1)[0];
            let clean = |seed| {
                let prompt: Vec<_> = tiny::prompt(seed, 80).into_iter().filter(|&t| t != poison).collect();
                let mut request = greedy(&prompt, 12);
                request.sampling.logit_bias = vec![(poison, f32::NEG_INFINITY)];
                request
            };
            let mut bad = clean(2);
            bad.prompt.push(poison);
            let requests = [clean(1), bad.clone(), clean(3), bad];
            let whole = together(&options, &tiny, &requests);
            tiny.damage("token_embd.weight", poison as usize * 256, f32::NAN);
            let damaged = together(&options, &tiny, &requests);
            let name = format!("{} on {}", tiny.name, device.name);
            assert!(whole.iter().all(|a| a.as_ref().is_some_and(|tokens| tokens.len() == 12)), "{name}");
            assert_eq!(damaged[0], whole[0], "{name}");
            assert_eq!(damaged[2], whole[2], "{name}");
            assert_eq!([&damaged[1], &damaged[3]], [&None, &None], "{name}");
        }
    }
}
