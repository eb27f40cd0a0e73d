//! How work is cut into steps changes nothing: two sequences together, shared pages, saved states, every KV type.

use nibble_backend::{Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_backend_reference::Reference;
use nibble_model::Model;
use nibble_testkit::{
    golden,
    runner::{Runner, limits},
    workspace_root,
};

fn models() -> impl Iterator<Item = (String, Model, Vec<golden::Prompt>)> {
    ["gemma3", "llama-rope-dynamic", "qwen3-moe-mixed", "qwen3.5"].into_iter().map(|name| {
        let path = workspace_root().join("golden/models").join(name);
        let checkpoint = nibble_format::open(&path, &nibble_quant::Registry::default()).unwrap();
        let prompts = golden::read(&path.join("golden.json"));
        (name.to_owned(), nibble_model::build(&checkpoint).unwrap(), prompts)
    })
}

/// One sequence of a step: its tokens, where they begin, its pages and its slot.
struct Part<'a> {
    tokens: &'a [u32],
    start: u32,
    pages: &'a [u32],
    state: u32,
    prompt_len: usize,
}

/// Runs the parts in one step; returns the logits of the last row of each.
fn run(plan: &mut dyn Plan, vocab: usize, parts: &[Part<'_>]) -> Vec<Vec<u32>> {
    let tokens: Vec<u32> = parts.iter().flat_map(|p| p.tokens).copied().collect();
    let positions: Vec<u32> = parts.iter().flat_map(|p| (p.start..).take(p.tokens.len())).collect();
    let sequence: Vec<u32> =
        parts.iter().enumerate().flat_map(|(i, p)| std::iter::repeat_n(i as u32, p.tokens.len())).collect();
    let prompt_len = |p: &Part<'_>| p.prompt_len as u32;
    let sequences: Vec<_> = parts
        .iter()
        .map(|p| Sequence { pages: p.pages, state: p.state, prompt_len: prompt_len(p) })
        .collect();
    let ends = parts.iter().scan(0, |end, p| {
        *end += p.tokens.len() as u32;
        Some(*end - 1)
    });
    let wanted: Vec<u32> = ends.collect();
    let step = Step {
        tokens: &tokens,
        positions: &positions,
        sequence: &sequence,
        sequences: &sequences,
        wanted: &wanted,
    };
    plan.run(&step).unwrap();
    let mut row = vec![0.0; vocab];
    let mut read = |i: usize| {
        plan.read(0, i, &mut row).unwrap();
        row.iter().map(|x| x.to_bits()).collect()
    };
    (0..parts.len()).map(&mut read).collect()
}

fn plan(model: &Model) -> Box<dyn Plan> {
    let limits =
        Limits { sequences: 2, pages: 6, state_slots: 3, ..limits(160, 2 * PAGE_LEN, KvType::default()) };
    let mut plan = Reference.compile(&model.graph, &limits).unwrap();
    (0..3).for_each(|slot| plan.clear_state(slot).unwrap());
    plan
}

#[test]
fn sequences_do_not_feel_their_neighbours() {
    for (name, model, prompts) in models() {
        let (a, b) = (&prompts[3].ids, &prompts[2].ids);
        let part = |tokens, pages, state| Part { tokens, start: 0, pages, state, prompt_len: tokens.len() };
        let vocab = model.config.vocab;
        let alone = [(a, 0), (b, 1)]
            .map(|(ids, state)| run(&mut *plan(&model), vocab, &[part(ids, &[0, 1], state)]).remove(0));
        let together = run(&mut *plan(&model), vocab, &[part(a, &[5, 2], 1), part(b, &[4], 0)]);
        assert!(together == alone, "{name}");
    }
}

#[test]
fn a_copied_page_and_state_continue_like_the_original() {
    for (name, model, prompts) in models() {
        let ids = &prompts[3].ids;
        let (head, tail) = ids.split_at(PAGE_LEN);
        let vocab = model.config.vocab;
        let part = |tokens, start, pages, state| Part { tokens, start, pages, state, prompt_len: ids.len() };
        let whole = run(&mut *plan(&model), vocab, &[part(ids, 0, &[0, 1], 0)]);
        let mut plan = plan(&model);
        run(&mut *plan, vocab, &[part(head, 0, &[3], 0)]);
        plan.copy_page(3, 5).unwrap();
        plan.copy_state(0, 2).unwrap();
        plan.clear_state(0).unwrap();
        // The first page is read by one and copied for the other; both write pages of their own.
        let both = run(&mut *plan, vocab, &[part(tail, PAGE_LEN as u32, &[5, 1], 2)]);
        assert!(both == whole, "{name}");
        assert!(
            plan.copy_page(0, 6).is_err() && plan.copy_state(3, 0).is_err() && plan.clear_state(3).is_err()
        );
    }
}

#[test]
fn every_kv_type_is_near_the_exact_one_and_indifferent_to_chunks() {
    for (name, model, prompts) in models() {
        // These models are sharp on purpose: small changes of a score move their logits far.
        let bounds = [0.0, 0.05, 0.5, 5.0];
        let ids = &prompts[2].ids[..13];
        let logits = |kv: KvType, chunk: usize| {
            let plan = Reference.compile(&model.graph, &limits(64, 64, kv)).unwrap();
            let mut runner = Runner::new(plan, model.config.vocab);
            runner.start(ids.len());
            runner.feed(ids, chunk)
        };
        let exact = logits(KvType::F32, 64);
        for ((kv_name, kv), bound) in KvType::ALL.into_iter().zip(bounds) {
            let whole = logits(kv, 64);
            for chunk in [1, 4, 7] {
                assert!(logits(kv, chunk) == whole, "{name}, {kv_name} in chunks of {chunk}");
            }
            let numbers = || whole.iter().flatten().zip(exact.iter().flatten());
            assert!(numbers().all(|(x, _)| x.is_finite()), "{name}, {kv_name}");
            let error = numbers().map(|(x, exact)| (x - exact).abs()).fold(0.0, f32::max);
            assert!(error <= bound, "{name}: {kv_name} moves logits by {error}");
        }
    }
}

#[test]
fn a_trained_model_hardly_feels_keys_and_values_of_8_bits() {
    let Some(shared) = nibble_testkit::shared_dir() else { return };
    let path = shared.join("tiny/tiny-llama-draft");
    let checkpoint = nibble_format::open(&path, &nibble_quant::Registry::default()).unwrap();
    let model = nibble_model::build(&checkpoint).unwrap();
    let prompts = golden::read(&path.join("golden.json"));
    for (kv, bound) in [(KvType::F16, 0.01), (KvType::Q8_0, 0.1), (KvType::Q4_0, 2.0)] {
        let plan = Reference.compile(&model.graph, &limits(13, 64, kv)).unwrap();
        let mut runner = Runner::new(plan, model.config.vocab);
        let prompt = prompts[2].cut(13);
        runner.start(13);
        let difference = prompt.difference(&runner.feed(&prompt.ids, 13));
        assert!(difference.max <= bound, "{kv}: {difference:?}");
    }
}

#[test]
fn a_step_that_breaks_a_rule_changes_nothing() {
    let (_, model, prompts) = models().last().unwrap();
    let (vocab, ids) = (model.config.vocab, &prompts[1].ids);
    let part = |tokens| Part { tokens, start: 0, pages: &[0, 1], state: 0, prompt_len: 11 };
    let expected = run(&mut *plan(&model), vocab, &[part(ids)]);
    let mut plan = plan(&model);
    let sequences = [Sequence { pages: &[0], state: 0, prompt_len: 1 }];
    let good = Step { tokens: &[1], positions: &[0], sequence: &[0], sequences: &sequences, wanted: &[0] };
    let bad = [
        Step { tokens: &[vocab as u32], ..good },
        Step { positions: &[64], ..good },
        Step { wanted: &[1], ..good },
        Step { sequence: &[1], ..good },
        Step { sequences: &[Sequence { pages: &[6], ..sequences[0] }], ..good },
        Step { sequences: &[Sequence { state: 3, ..sequences[0] }], ..good },
    ];
    for step in bad {
        assert!(plan.run(&step).is_err(), "{step:?}");
    }
    assert!(run(&mut *plan, vocab, &[part(ids)]) == expected);
    let mut row = vec![0.0; vocab];
    assert!(plan.read(1, 0, &mut row).is_err() && plan.read(0, 1, &mut row).is_err());
    assert!(plan.read(0, 0, &mut row[1..]).is_err());
}
