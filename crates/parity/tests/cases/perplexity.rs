//! Perplexity against transformers' own, and divergence against its definition.

use crate::common::{golden, model_at};
use nibble_api::{Activations, KvType, Model, Options, Registry, log_sum_exp};
use nibble_parity::{BaseFile, Chunks, Cut, divergence, perplexity};
use nibble_testkit::TempDir;
use std::{ops::ControlFlow, sync::Arc};

fn options() -> Options {
    Options { kv: KvType::F32, activations: Activations::F32, threads: Some(2), ..Options::default() }
}

fn json() -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(golden("perplexity.json")).unwrap()).unwrap()
}

fn cut(ctx: usize) -> Cut {
    Cut { ctx, stride: None, chunks: None }
}

#[test]
fn it_is_what_transformers_says_of_the_same_chunks() {
    let golden_values = json();
    let (text, ctx) = (golden_values["text"].as_str().unwrap(), golden_values["context"].as_u64().unwrap());
    for expected in golden_values["models"].as_array().unwrap() {
        let name = expected["model"].as_str().unwrap();
        let model = model_at(&golden("models").join(name));
        let chunks = Chunks::of_text(&model, text, &cut(ctx as usize)).unwrap();
        let mut engine = model.start(&chunks.options(&options())).unwrap();
        let mut told = vec![];
        let found = perplexity(&mut engine, &chunks, None, &mut |done, _| {
            told.push(done);
            ControlFlow::Continue(())
        })
        .unwrap();
        assert_eq!(found.tokens as u64, expected["scored"].as_u64().unwrap(), "{name}");
        assert_eq!(told, (1..=chunks.count()).collect::<Vec<_>>());
        for (what, found) in [("perplexity", found.perplexity), ("error", found.error)] {
            let expected = expected[what].as_f64().unwrap();
            assert!((found / expected - 1.0).abs() < 1e-3, "{name}: {what} is {found}, not {expected}");
        }
    }
}

#[test]
fn a_stride_scores_more_of_the_text_and_stopping_stops() {
    let golden_values = json();
    let text = golden_values["text"].as_str().unwrap();
    let model = model_at(&golden("models/llama"));
    let cut = Cut { ctx: 48, stride: Some(16), chunks: Some(3) };
    let chunks = Chunks::of_text(&model, text, &cut).unwrap();
    let mut engine = model.start(&chunks.options(&options())).unwrap();
    let found = perplexity(&mut engine, &chunks, None, &mut |_, _| ControlFlow::Continue(())).unwrap();
    assert_eq!((chunks.count(), found.tokens), (3, 48));
    let stopped = perplexity(&mut engine, &chunks, None, &mut |_, _| ControlFlow::Break(()));
    assert!(stopped.unwrap_err().to_string().contains("after 1 of 3"));
}

/// All logits of the scored positions, by hand.
fn logits(model: &Arc<Model>, tokens: &[u32], ctx: usize) -> Vec<Vec<f32>> {
    let mut engine = model.start(&Options { context: Some(ctx), ..options() }).unwrap();
    let mut rows = vec![];
    for chunk in tokens.chunks_exact(ctx) {
        engine
            .score(chunk, |position, row| {
                if (ctx / 2..ctx - 1).contains(&position) {
                    rows.push(row.to_vec());
                }
            })
            .unwrap();
    }
    rows
}

#[test]
fn divergence_from_a_kept_run_is_that_of_the_definition() {
    let (full, rounded) =
        (model_at(&golden("gguf/llama-f32.gguf")), model_at(&golden("gguf/llama-q8_0.gguf")));
    let (golden_values, ctx) = (json(), 40);
    let chunks = Chunks::of_text(&full, golden_values["text"].as_str().unwrap(), &cut(ctx)).unwrap();
    let head = chunks.head(full.config.vocab).unwrap();
    let scratch = TempDir::new("parity-kl");
    let path = scratch.file("kept");
    let mut file = vec![];
    head.write(&mut file).unwrap();
    let mut engine = full.start(&chunks.options(&options())).unwrap();
    let kept =
        perplexity(&mut engine, &chunks, Some(&mut file), &mut |_, _| ControlFlow::Continue(())).unwrap();
    std::fs::write(&path, file).unwrap();
    let base = BaseFile::open(&path).unwrap();
    let chunks = Chunks::of_base(&full, &base.head, None);
    let against = |model: &Arc<Model>| {
        let mut engine = model.start(&chunks.options(&options())).unwrap();
        divergence(&mut engine, &chunks, &base, &mut |_, _| ControlFlow::Continue(())).unwrap()
    };
    let itself = against(&full);
    assert!(itself.kl[0].abs() < 1e-5 && itself.top1[0] > 0.99, "{itself:?}");
    assert_eq!(itself.model, kept, "the same run");
    // This model is often surprised by more than a file keeps.
    assert!(itself.base.perplexity < kept.perplexity && itself.base.perplexity > 100.0, "{itself:?}");
    let found = against(&rounded);
    let pairs =
        logits(&full, &base.head.tokens, ctx).into_iter().zip(logits(&rounded, &base.head.tokens, ctx));
    let (mut kl, mut same, mut count) = (0.0, 0, 0);
    let top = |row: &[f32]| (0..row.len()).max_by(|&a, &b| row[a].total_cmp(&row[b])).unwrap();
    for (p, q) in pairs {
        let (sum_p, sum_q) = (log_sum_exp(&p), log_sum_exp(&q));
        let terms = p.iter().zip(&q).map(|(&p, &q)| {
            let (p, q) = (f64::from(p) - sum_p, f64::from(q) - sum_q);
            p.exp() * (p - q)
        });
        kl += terms.sum::<f64>();
        same += usize::from(top(&p) == top(&q));
        count += 1;
    }
    let (kl, same) = (kl / f64::from(count), same as f64 / f64::from(count));
    assert!(kl > 1e-5 && (found.kl[0] / kl - 1.0).abs() < 0.02, "{} is not {kl}", found.kl[0]);
    assert!((found.top1[0] - same).abs() < 0.03 && found.kl_percentiles.is_sorted_by(|a, b| a.1 <= b.1));
}

#[test]
fn texts_without_a_tokenizer_are_refused() {
    let mut model = Model::open(&golden("models/llama"), &Registry::default()).unwrap();
    model.tokenizer = None;
    assert!(Chunks::of_text(&model, "any", &cut(8)).is_err());
}
