//! What a sampler promises, over all its stages.

use nibble_sampler::{
    Dry, Error, Sampler, SamplerParams, Stage, default_order, log_sum_exp, parse_order, top_logprobs, uniform,
};

const NONE: f32 = f32::NEG_INFINITY;

fn logits_of(probabilities: &[f32]) -> Vec<f32> {
    probabilities.iter().map(|p| p.ln()).collect()
}

fn sampler(params: SamplerParams, vocab: usize) -> Sampler {
    Sampler::new(params, vocab).unwrap()
}

/// Every token that comes up in 400 draws, in order.
fn drawn(params: &SamplerParams, logits: &[f32]) -> Vec<u32> {
    let mut s = sampler(params.clone(), logits.len());
    let mut seen: Vec<u32> = (0..400)
        .map(|n| {
            s.seek(n);
            s.sample(&mut logits.to_vec()).unwrap()
        })
        .collect();
    seen.sort_unstable();
    seen.dedup();
    seen
}

fn greedy_after(params: SamplerParams, history: &[u32], logits: &[f32]) -> u32 {
    let mut s = sampler(SamplerParams { temperature: 0.0, ..params }, logits.len());
    history.iter().for_each(|&token| s.observe(token));
    s.sample(&mut logits.to_vec()).unwrap()
}

/// The same numbers on every machine, uniform in [0, 1).
fn numbers(seed: u64, n: usize) -> Vec<f32> {
    (0..n).map(|i| uniform(seed, i as u64) as f32).collect()
}

#[test]
fn min_p_and_temperature_follow_the_order() {
    let logits = logits_of(&[0.5, 0.3, 0.15, 0.05]);
    for (order, expected) in [
        ("min-p,temperature", vec![0, 1, 2]),    // 0.05 < 0.2 * 0.5
        ("temperature,min-p", vec![0, 1, 2, 3]), // at temperature 5 the least is 0.63 of the best
        ("temperature", vec![0, 1, 2, 3]),
        ("min-p", vec![0, 1, 2]),
    ] {
        let order = parse_order(order).unwrap();
        let params = SamplerParams { temperature: 5.0, min_p: 0.2, order, ..Default::default() };
        assert_eq!(drawn(&params, &logits), expected);
    }
}

#[test]
fn each_pair_of_stages_can_be_swapped() {
    // With the first order a filter sees the flat distribution, with the second the steep one.
    let logits = logits_of(&[0.6, 0.2, 0.1, 0.06, 0.04]);
    for (stage, params, flat, steep) in [
        ("top-p", SamplerParams { top_p: 0.75, ..Default::default() }, 4, 2),
        ("min-p", SamplerParams { min_p: 0.3, ..Default::default() }, 5, 2),
        ("typical", SamplerParams { typical_p: 0.5, ..Default::default() }, 3, 2),
    ] {
        for (order, count) in
            [(format!("temperature,{stage}"), flat), (format!("{stage},temperature"), steep)]
        {
            let params =
                SamplerParams { temperature: 4.0, order: parse_order(&order).unwrap(), ..params.clone() };
            assert_eq!(drawn(&params, &logits).len(), count, "{order}");
        }
    }
}

#[test]
fn penalties_after_a_filter_see_what_it_left() {
    let params = |order: &str| SamplerParams {
        top_k: 1,
        presence_penalty: 100.0,
        order: parse_order(order).unwrap(),
        ..Default::default()
    };
    for (order, expected) in [("penalties,top-k", 1), ("top-k,penalties", 0)] {
        let mut s = sampler(params(order), 3);
        s.observe(0);
        assert_eq!(s.sample(&mut [2.0, 1.0, 0.0]).unwrap(), expected, "{order}");
    }
}

#[test]
fn a_seed_repeats_and_another_differs() {
    let run = |seed| -> Vec<u32> {
        let mut s = sampler(SamplerParams { seed, ..Default::default() }, 64);
        (0..32)
            .map(|_| {
                let token = s.sample(&mut [0.0; 64]).unwrap();
                s.accept(token);
                token
            })
            .collect()
    };
    let (a, b, c) = (run(1), run(1), run(2));
    assert_eq!(a, b);
    assert_ne!(a, c);
    for run in [a, c] {
        assert!(run.iter().any(|t| *t != run[0]));
    }
}

#[test]
fn a_draw_depends_on_seed_and_place_alone() {
    let vocab = 100;
    let params = SamplerParams { seed: 9, top_k: 40, top_p: 0.9, min_p: 0.01, ..Default::default() };
    let row = |n: u64| numbers(n, vocab).iter().map(|v| v * 8.0).collect::<Vec<f32>>();
    let mut s = sampler(params.clone(), vocab);
    let straight: Vec<u32> = (0..20)
        .map(|n| {
            let token = s.sample(&mut row(n)).unwrap();
            s.accept(token);
            token
        })
        .collect();
    for n in (0..20).rev() {
        let mut fresh = sampler(params.clone(), vocab);
        fresh.seek(n);
        assert_eq!(fresh.sample(&mut row(n)).unwrap(), straight[n as usize]);
        assert_eq!(fresh.sample(&mut row(n)).unwrap(), straight[n as usize], "asking again changes nothing");
    }
    s.reset();
    assert_eq!(s.sample(&mut row(0)).unwrap(), straight[0]);
}

#[test]
fn draws_follow_the_probabilities() {
    let probabilities = [0.4, 0.05, 0.3, 0.05, 0.2];
    let n = 20_000;
    for (temperature, power) in [(1.0, 1.0f64), (0.5, 2.0), (2.0, 0.5)] {
        let mut s = sampler(SamplerParams { temperature, seed: 3, ..Default::default() }, 5);
        let mut counts = [0.0; 5];
        for place in 0..n {
            s.seek(place);
            counts[s.sample(&mut logits_of(&probabilities)).unwrap() as usize] += 1.0;
        }
        let total: f64 = probabilities.iter().map(|p| f64::from(*p).powf(power)).sum();
        for (count, p) in counts.iter().zip(probabilities) {
            let expected = f64::from(p).powf(power) / total;
            assert!((count / n as f64 - expected).abs() < 0.015, "{temperature}: {counts:?}");
        }
    }
}

#[test]
fn greedy_takes_the_lowest_id_of_equals() {
    for (logits, expected) in [
        (vec![1.0, 3.0, 3.0, 2.0], 1),
        (vec![NONE, NONE, -7.0], 2),
        (vec![0.0], 0),
        (vec![-0.0, 0.0], 0),
        (vec![f32::MIN, f32::MIN], 0),
    ] {
        assert_eq!(greedy_after(SamplerParams::default(), &[], &logits), expected, "{logits:?}");
        // A filter that keeps one token keeps the same one.
        for params in [
            SamplerParams { top_k: 1, ..Default::default() },
            SamplerParams { top_p: 1e-6, ..Default::default() },
            SamplerParams { temperature: 1e-30, ..Default::default() },
        ] {
            if logits.len() != 2 {
                assert!(drawn(&params, &logits).contains(&expected), "{params:?} {logits:?}");
            }
        }
    }
}

#[test]
fn filters_keep_what_their_definitions_say() {
    for seed in 0..60 {
        let vocab = [1, 2, 5, 33, 300, 2000][seed as usize % 6];
        let mut logits: Vec<f32> = numbers(seed, vocab).iter().map(|v| (v * 12.0).floor()).collect(); // many equals
        if vocab > 2 {
            logits[1] = NONE;
        }
        let k = 1 + seed as usize % 7;
        let p = 0.05 + 0.9 * uniform(seed, 1_000_000) as f32;
        let mut order: Vec<u32> = (0..vocab as u32).filter(|&i| logits[i as usize] > NONE).collect();
        order.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]).then(a.cmp(&b)));
        let total = log_sum_exp(&logits);
        let probability = |i: u32| (f64::from(logits[i as usize]) - total).exp();
        let check = |params: SamplerParams, kept: &[u32]| {
            let found = drawn(&params, &logits);
            assert!(found.iter().all(|t| kept.contains(t)), "{params:?}: {found:?} of {kept:?}");
            let likely =
                |&&t: &&u32| probability(t) / kept.iter().map(|&t| probability(t)).sum::<f64>() > 0.06;
            assert!(
                kept.iter().filter(likely).all(|t| found.contains(t)),
                "{params:?}: {found:?} of {kept:?}"
            );
        };
        check(SamplerParams { top_k: k, seed, ..Default::default() }, &order[..k.min(order.len())]);
        let mut sum = 0.0;
        let nucleus = order.iter().take_while(|&&t| {
            let before = sum;
            sum += probability(t);
            before < f64::from(p)
        });
        check(SamplerParams { top_p: p, seed, ..Default::default() }, &nucleus.copied().collect::<Vec<_>>());
        let least = f64::from(p) * probability(order[0]) * (1.0 - 1e-9);
        let share: Vec<u32> = order.iter().copied().filter(|&t| probability(t) >= least).collect();
        check(SamplerParams { min_p: p, seed, ..Default::default() }, &share);
    }
}

#[test]
fn typical_keeps_the_expected_surprise() {
    // Entropy 1.28 nats; surprises .69 1.61 1.90 2.04: the second is closest, then the first by 0.03.
    let logits = logits_of(&[0.5, 0.2, 0.15, 0.13]);
    for (typical_p, kept) in
        [(0.1, vec![1]), (0.5, vec![0, 1]), (0.8, vec![0, 1, 2]), (1.0, vec![0, 1, 2, 3])]
    {
        assert_eq!(drawn(&SamplerParams { typical_p, ..Default::default() }, &logits), kept, "{typical_p}");
    }
}

#[test]
fn penalties_lower_what_was_said() {
    let base = SamplerParams::default();
    for (params, history, logits, expected) in [
        (SamplerParams { repeat_penalty: 2.0, ..base.clone() }, vec![0], vec![1.9, 1.0], 1),
        (SamplerParams { repeat_penalty: 1.5, ..base.clone() }, vec![0, 0, 0], vec![1.6, 1.0], 0), // once, not thrice
        (SamplerParams { repeat_penalty: 2.0, ..base.clone() }, vec![0], vec![-1.0, -1.5], 1),
        (SamplerParams { presence_penalty: 0.5, ..base.clone() }, vec![0, 0, 0], vec![1.6, 1.0], 0),
        (SamplerParams { frequency_penalty: 0.5, ..base.clone() }, vec![0, 0], vec![2.1, 1.0], 0),
        (SamplerParams { frequency_penalty: 0.5, ..base.clone() }, vec![0, 0, 0], vec![1.6, 1.2], 1),
        (SamplerParams { frequency_penalty: -1.0, ..base.clone() }, vec![1, 1], vec![2.5, 1.0], 1),
        (
            SamplerParams { presence_penalty: 9.0, repeat_last_n: 2, ..base.clone() },
            vec![0, 1, 1],
            vec![2.0, 3.0],
            0,
        ),
        (
            SamplerParams { presence_penalty: 9.0, repeat_last_n: 0, ..base.clone() },
            vec![0],
            vec![2.0, 1.0],
            0,
        ),
        (SamplerParams { presence_penalty: 9.0, order: vec![], ..base.clone() }, vec![0], vec![2.0, 1.0], 0),
        (SamplerParams { presence_penalty: 9.0, ..base.clone() }, vec![77], vec![2.0, 1.0], 0), // not of the vocabulary
        (SamplerParams { logit_bias: vec![(1, 2.0)], ..base.clone() }, vec![], vec![2.0, 1.0], 1),
        (SamplerParams { logit_bias: vec![(0, NONE)], ..base.clone() }, vec![], vec![2.0, 1.0], 1),
        (SamplerParams { repeat_penalty: 1e-38, ..base.clone() }, vec![0, 1], vec![1e9, 1.0], 0),
    ] {
        assert_eq!(greedy_after(params.clone(), &history, &logits), expected, "{params:?} {history:?}");
    }
}

#[test]
fn dry_lowers_the_token_that_would_go_on_with_a_repetition() {
    let dry = Dry { multiplier: 1.0, base: 2.0, allowed_length: 2, ..Dry::default() };
    // 1 2 3 was said, and now 1 2 again: 3 would lengthen a match of 2.
    for (history, dry, penalty) in [
        (vec![1, 2, 3, 1, 2], dry.clone(), 1.0),
        (vec![0, 1, 2, 3, 0, 1, 2], dry.clone(), 2.0),
        (vec![4, 0, 1, 2, 3, 4, 0, 1, 2], dry.clone(), 4.0),
        (vec![5, 2, 3, 1, 2], dry.clone(), 0.0), // a match of 1
        (vec![1, 2, 3, 1, 2], Dry { allowed_length: 1, ..dry.clone() }, 2.0),
        (vec![1, 2, 3, 1, 2], Dry { allowed_length: 3, ..dry.clone() }, 0.0),
        (vec![1, 2, 3, 1, 2], Dry { multiplier: 0.0, ..dry.clone() }, 0.0),
        (vec![1, 2, 3, 1, 2], Dry { penalty_last_n: 4, ..dry.clone() }, 0.0), // the first 1 is out of sight
        (vec![1, 2, 3, 1, 2], Dry { penalty_last_n: 5, ..dry.clone() }, 1.0),
        (vec![4, 0, 1, 2, 3, 4, 0, 1, 2], Dry { breakers: vec![vec![0]], ..dry.clone() }, 1.0),
        (vec![4, 0, 1, 2, 3, 4, 0, 1, 2], Dry { breakers: vec![vec![4, 0]], ..dry.clone() }, 1.0),
        (vec![4, 0, 1, 2, 3, 4, 0, 1, 2], Dry { breakers: vec![vec![0, 4]], ..dry.clone() }, 4.0),
        (vec![4, 0, 1, 2, 3, 4, 0, 1, 2], Dry { breakers: vec![vec![2]], ..dry.clone() }, 0.0),
        (vec![1, 2, 3, 9, 0, 1, 2, 3, 5, 0, 1, 2], dry.clone(), 2.0), // the longest of two matches
        (vec![3; 40], dry.clone(), f32::MAX),                         // 3 3 3 ...: a match of 39
    ] {
        // Token 6 is just above 3 lowered by half a unit more than expected, and just below by half less.
        for (edge, expected) in [(-0.5, 3), (0.5, 6)] {
            let mut logits = vec![-1e38; 10];
            logits[3] = 100.0;
            logits[6] = if penalty == f32::MAX { 100.0 + edge } else { 100.0 - penalty + edge };
            let expected = if penalty == f32::MAX { 6 } else { expected };
            let params = SamplerParams { dry: dry.clone(), ..Default::default() };
            assert_eq!(greedy_after(params, &history, &logits), expected, "{history:?} {dry:?}");
        }
    }
}

#[test]
fn dry_agrees_with_the_plain_definition() {
    for seed in 0..40u64 {
        let length = 1 + (uniform(seed, 0) * 60.0) as usize;
        let history: Vec<u32> = numbers(seed, length).iter().map(|v| (v * 3.0) as u32).collect();
        let breakers = if seed % 2 == 0 { vec![] } else { vec![vec![2, 1]] };
        let dry = Dry { multiplier: 0.5, base: 1.5, allowed_length: 2, penalty_last_n: 50, breakers };
        let seen = &history[length.saturating_sub(50)..];
        let mut longest = [0usize; 3];
        for end in 0..seen.len() - 1 {
            let mut n = 0;
            while n <= end && seen[end - n] == seen[seen.len() - 1 - n] {
                let back = &seen[..seen.len() - n];
                if dry.breakers.iter().any(|b| back.ends_with(b)) {
                    break;
                }
                n += 1;
            }
            let next = seen[end + 1] as usize;
            longest[next] = longest[next].max(n);
        }
        // What sampling did to equal logits shows in the logits it leaves behind.
        let mut s = sampler(SamplerParams { temperature: 0.0, dry: dry.clone(), ..Default::default() }, 3);
        history.iter().for_each(|&token| s.observe(token));
        let mut logits = [1.0f32; 3];
        s.sample(&mut logits).unwrap();
        for (logit, n) in logits.iter().zip(longest) {
            let penalty = if n >= 2 { 0.5 * 1.5f32.powi(n as i32 - 2) } else { 0.0 };
            assert!(
                (1.0 - penalty - logit).abs() <= 1e-5 * (1.0 + penalty),
                "{seed}: {history:?} {logits:?} {longest:?}"
            );
        }
    }
}

#[test]
fn bad_logits_are_errors() {
    for temperature in [0.0, 1.0] {
        let mut s = sampler(SamplerParams { temperature, ..Default::default() }, 3);
        let mut fails = |mut logits: Vec<f32>| s.sample(&mut logits).unwrap_err();
        assert!(fails(vec![1.0, f32::NAN, f32::NAN]).to_string().contains("token 1"));
        assert_eq!(fails(vec![f32::NAN, 1.0, 2.0]), Error::NotANumber { token: 0 });
        assert_eq!(fails(vec![NONE; 3]), Error::NothingAllowed { tokens: 3 });
        assert_eq!(fails(vec![1.0, f32::INFINITY, 2.0]), Error::Infinite { token: 1 });
        assert_eq!(fails(vec![1.0; 2]), Error::Length { expected: 3, found: 2 });
        assert_eq!(fails(vec![]), Error::Length { expected: 3, found: 0 });
        let bias = (0..3).map(|t| (t, NONE)).collect();
        let mut s = sampler(SamplerParams { temperature, logit_bias: bias, ..Default::default() }, 3);
        assert_eq!(s.sample(&mut [1.0; 3]), Err(Error::NothingAllowed { tokens: 3 }));
    }
}

#[test]
fn no_parameters_in_range_make_a_sampler_fail() {
    let extremes = [f32::MIN, -1e30, -1.0, 0.0, f32::MIN_POSITIVE, 1e-30, 0.5, 1.0, 1e30, f32::MAX];
    let pick = |seed: u64, n: u64| extremes[(uniform(seed, n) * extremes.len() as f64) as usize];
    let mut made = 0;
    for seed in 0..6000 {
        let mut order = default_order();
        for i in 0..order.len() {
            order.swap(i, (uniform(seed, 100 + i as u64) * 7.0) as usize);
        }
        let params = SamplerParams {
            temperature: pick(seed, 0).abs(),
            top_k: (uniform(seed, 1) * 5.0) as usize,
            top_p: (uniform(seed, 2) as f32).max(1e-30),
            min_p: uniform(seed, 3) as f32,
            typical_p: (uniform(seed, 4) as f32).max(1e-30),
            repeat_penalty: pick(seed, 5).abs(),
            repeat_last_n: (uniform(seed, 6) * 4.0) as usize,
            frequency_penalty: pick(seed, 7),
            presence_penalty: pick(seed, 8),
            dry: Dry { multiplier: pick(seed, 9).abs(), base: pick(seed, 10).abs(), ..Dry::default() },
            logit_bias: vec![(0, pick(seed, 11))],
            seed,
            order,
        };
        let Ok(mut s) = Sampler::new(params.clone(), 5) else { continue };
        made += 1;
        for n in 0..12 {
            let mut logits: Vec<f32> = (0..5).map(|i| pick(seed, 20 + n * 5 + i)).collect();
            let token = s.sample(&mut logits).unwrap_or_else(|error| panic!("{params:?}: {error}"));
            assert!(token < 5);
            s.accept(token);
        }
    }
    assert!(made > 1000, "{made}");
}

#[test]
fn parameters_out_of_range_are_refused_by_name() {
    let base = SamplerParams::default;
    let dry = |dry| SamplerParams { dry, ..base() };
    for (params, name) in [
        (SamplerParams { temperature: -0.1, ..base() }, "temperature"),
        (SamplerParams { temperature: f32::NAN, ..base() }, "temperature"),
        (SamplerParams { temperature: f32::INFINITY, ..base() }, "temperature"),
        (SamplerParams { top_p: 0.0, ..base() }, "top_p"),
        (SamplerParams { top_p: 1.01, ..base() }, "top_p"),
        (SamplerParams { top_p: f32::NAN, ..base() }, "top_p"),
        (SamplerParams { min_p: -0.1, ..base() }, "min_p"),
        (SamplerParams { min_p: 1.1, ..base() }, "min_p"),
        (SamplerParams { typical_p: 0.0, ..base() }, "typical_p"),
        (SamplerParams { repeat_penalty: 0.0, ..base() }, "repeat_penalty"),
        (SamplerParams { repeat_last_n: usize::MAX, ..base() }, "repeat_last_n"),
        (SamplerParams { frequency_penalty: f32::NAN, ..base() }, "frequency_penalty"),
        (SamplerParams { presence_penalty: f32::INFINITY, ..base() }, "presence_penalty"),
        (SamplerParams { logit_bias: vec![(8, 0.0)], ..base() }, "logit_bias"),
        (SamplerParams { logit_bias: vec![(0, f32::NAN)], ..base() }, "logit_bias"),
        (SamplerParams { order: vec![Stage::Dry, Stage::Dry], ..base() }, "order"),
        (dry(Dry { multiplier: -1.0, ..Dry::default() }), "dry.multiplier"),
        (dry(Dry { base: 0.5, ..Dry::default() }), "dry.base"),
        (dry(Dry { allowed_length: 0, ..Dry::default() }), "dry.allowed_length"),
        (dry(Dry { penalty_last_n: usize::MAX, ..Dry::default() }), "dry.penalty_last_n"),
        (dry(Dry { breakers: vec![vec![]], ..Dry::default() }), "dry.breakers"),
        (dry(Dry { breakers: vec![vec![1]; 257], ..Dry::default() }), "dry.breakers"),
    ] {
        match Sampler::new(params, 8) {
            Err(Error::Parameter { name: found, .. }) => assert_eq!(found, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    let error = Sampler::new(SamplerParams { top_p: 1.5, ..base() }, 8).unwrap_err();
    assert_eq!(error.to_string(), "sampling parameter `top_p`: expected a number above 0, to 1, found 1.5");
    assert!(Sampler::new(base(), 0).is_err());
}

#[test]
fn orders_are_read_from_text() {
    let text = "penalties,dry,top-k,typical,top-p,min-p,temperature";
    assert_eq!(parse_order(text).unwrap(), default_order());
    assert_eq!(parse_order(" temperature , top-k ").unwrap(), [Stage::Temperature, Stage::TopK]);
    assert_eq!(parse_order("").unwrap(), []);
    for (text, found) in [("top_k", "`top_k`"), ("top-k,", "``"), ("dry,dry", "`dry` twice")] {
        assert!(parse_order(text).unwrap_err().to_string().ends_with(&format!("found {found}")), "{text}");
    }
}

#[test]
fn logprobs_are_those_of_the_whole_row() {
    let logits = logits_of(&[0.1, 0.4, 0.1, 0.4]);
    assert!(log_sum_exp(&logits).abs() < 1e-7);
    assert!((log_sum_exp(&[1000.0, 1000.0]) - 1000.0 - 2f64.ln()).abs() < 1e-9);
    assert_eq!(log_sum_exp(&[NONE; 3]), f64::NEG_INFINITY);
    assert!(log_sum_exp(&[NONE, f32::NAN]).is_nan());
    let top = top_logprobs(&logits, 3);
    assert_eq!(top.iter().map(|t| t.0).collect::<Vec<_>>(), [1, 3, 0]);
    for ((_, found), p) in top.iter().zip([0.4f32, 0.4, 0.1]) {
        assert!((found - p.ln()).abs() < 1e-6);
    }
    assert_eq!(top_logprobs(&logits, 9).len(), 4);
    assert_eq!(top_logprobs(&logits, 0), []);
}

#[cfg(feature = "serde")]
#[test]
fn parameters_go_through_json() {
    let params = SamplerParams { top_k: 7, order: vec![Stage::MinP, Stage::Typical], ..Default::default() };
    let text = serde_json::to_string(&params).unwrap();
    assert!(text.contains(r#""order":["min-p","typical"]"#), "{text}");
    assert_eq!(serde_json::from_str::<SamplerParams>(&text).unwrap(), params);
    assert_eq!(serde_json::from_str::<SamplerParams>("{}").unwrap(), SamplerParams::default());
    assert!(serde_json::from_str::<SamplerParams>(r#"{"top_q": 1}"#).is_err());
}
