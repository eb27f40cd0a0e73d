//! Models with one number that is NaN or infinite: whatever weight it is in, logits must show it.

use crate::{
    TempDir, ops,
    runner::{Runner, limits},
    tiny::{self, Tiny, VOCAB},
};
use nibble_backend::{Activations, Backend, KvType, Limits, Plan};
use nibble_graph::{Attention, Graph, KvLayer, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use std::path::Path;

/// Tokens of a prompt that is one step: enough for kernels of many rows.
const PROMPT: usize = 40;

/// Tokens after it, one a step: with two experts of eight a token, each expert is taken.
const ALONE: usize = 16;

/// Damages every kind of weight of the tiny models in turn; `graph` reads a file.
///
/// # Panics
/// If the logits of a device do not show it, or those of another sequence do.
pub fn shows_in_logits(device: &dyn Backend, graph: impl Fn(&Path) -> Graph) {
    let dir = TempDir::new("damage");
    let settings = [
        (Activations::Auto, KvType::F16, "q8_0"),
        (Activations::F32, KvType::Q4_0, "f32"),
        (Activations::Auto, KvType::F16, "f32"),
        (Activations::Auto, KvType::Q8_0, "q8_0"),
    ];
    for (tiny, (activations, kv, encoding)) in tiny::all().into_iter().zip(settings) {
        for (name, file) in files(&tiny, encoding) {
            let path = dir.file("model.gguf");
            std::fs::write(&path, file).expect("a file is written");
            let plan = || device.compile(&graph(&path), &limits_of(activations, kv)).expect("a plan");
            let lost = unnoticed(plan());
            assert!(lost.is_empty(), "{}, `{name}`, {kv}: not seen in steps of {lost:?}", tiny.name);
            if name == "token_embd.weight" {
                assert!(!harms(plan()), "{}, {kv}: another sequence is damaged", tiny.name);
            }
        }
    }
}

/// Damages the sink of one head.
///
/// # Panics
/// If a device's results do not show it in that head, or show it in another.
pub fn shows_in_its_head(device: &dyn Backend) {
    for (kv, activations) in [(KvType::F16, Activations::Auto), (KvType::Q8_0, Activations::F32)] {
        let limits = Limits { kv, activations, check_finite: false, ..ops::limits(64) };
        let mut plan = device.compile(&sink(), &limits).expect("a plan");
        assert!(sink_shows(&mut *plan), "{kv}");
    }
}

/// What a damaged model runs with.
fn limits_of(activations: Activations, kv: KvType) -> Limits {
    Limits { activations, check_finite: false, ..limits(PROMPT, PROMPT + ALONE, kv) }
}

/// The weights that one of the last two layers of a model has, and those beside the layers, each as a file with one
/// number damaged: NaN in `f32`, else an infinite scale of a block.
fn files(tiny: &Tiny, encoding: &str) -> Vec<(String, Vec<u8>)> {
    let layers = tiny.weights().filter_map(|(name, _)| name.split('.').nth(1)?.parse::<usize>().ok()).max();
    let last = layers.map_or(0, |layer| layer.saturating_sub(1));
    let early = |name: &str| {
        let layer = name.strip_prefix("blk.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
        layer.is_some_and(|layer| layer < last)
    };
    let names: Vec<(String, Vec<usize>)> =
        tiny.weights().filter(|(name, _)| !early(name)).map(|(n, d)| (n.into(), d.into())).collect();
    let damaged = names.into_iter().map(|(name, dims)| {
        let mut tiny = tiny.clone();
        // A row that the prompt has, of a table of tokens; the third of other matrices.
        let row = if name == "token_embd.weight" { tiny::prompt(1, PROMPT)[2] as usize } else { 2 };
        let width = dims[dims.len() - 1];
        let number = if encoding == "f32" || dims.len() == 1 { f32::NAN } else { f32::INFINITY };
        tiny.damage(&name, if dims.len() > 1 { row * width + 3 } else { 3 }, number);
        (name, tiny.gguf_in(codec(encoding)))
    });
    damaged.collect()
}

/// Whether what the tokens of a damaged table leave behind reaches others: a prompt without them, in the same pages.
fn harms(plan: Box<dyn Plan>) -> bool {
    let mut runner = Runner::new(plan, VOCAB);
    let prompt = tiny::prompt(1, PROMPT);
    runner.start(PROMPT);
    runner.feed(&prompt, PROMPT);
    let clean: Vec<u32> = prompt.iter().copied().filter(|token| *token != prompt[2]).take(ALONE).collect();
    runner.start(clean.len());
    let mut rows = runner.feed(&clean, clean.len() - 1);
    runner.start(clean.len());
    rows.extend(runner.feed(&clean, 1));
    rows.iter().flatten().any(|x| !x.is_finite())
}

/// Attention whose second head has a sink that is no number.
fn sink() -> Graph {
    let mut g = Graph::default();
    let [q, k, v] =
        [("q", 64), ("k", 32), ("v", 32)].map(|(name, width)| ops::rows(&mut g, name, width).expect("rows"));
    let cache = g.add_cache(KvLayer { kv_heads: 1, key_dim: 32, value_dim: 32 });
    let bytes: Vec<u8> = [0.5, f32::NAN].iter().flat_map(|x: &f32| x.to_le_bytes()).collect();
    let sinks = Encoded::new("sinks", Shape::from([2]), codec("f32"), bytes.into()).expect("two numbers");
    let attention = Attention { cache, heads: 2, scale: 0.2, window: None, soft_cap: None };
    let y =
        g.attention_with_sinks([q, k, v], Some(Weight::new("sinks", sinks)), attention).expect("attention");
    g.output(y);
    g
}

/// Whether all rows of [`sink`] show it in the second head, and there alone: rows alone, and many together.
fn sink_shows(plan: &mut dyn Plan) -> bool {
    let graph = sink();
    let runs = [([1, 1], 2), ([PROMPT, 1], 1)];
    let mut rows = runs.into_iter().flat_map(|(counts, steps)| ops::run_plan(plan, &graph, counts, steps));
    rows.all(|row| row[..32].iter().all(|x| x.is_finite()) && row[32..].iter().all(|x| x.is_nan()))
}

/// The kinds of steps of a plan of a damaged model whose logits are all finite.
fn unnoticed(plan: Box<dyn Plan>) -> Vec<&'static str> {
    let mut runner = Runner::new(plan, VOCAB);
    let spoilt = |rows: &[Vec<f32>]| rows.iter().flatten().any(|x| !x.is_finite());
    let tokens = tiny::prompt(1, PROMPT + ALONE);
    let (prompt, rest) = tokens.split_at(PROMPT);
    runner.start(PROMPT);
    let many = spoilt(&runner.feed(prompt, PROMPT));
    // From a sequence's third token on, which is the one that a table of tokens has damage for.
    runner.start(PROMPT);
    let alone = spoilt(&runner.feed(&prompt[..ALONE], 1));
    let behind = spoilt(&runner.feed(&[prompt, rest].concat()[ALONE..2 * ALONE], 4));
    let kinds = [("many rows", many), ("one row", alone), ("a few rows", behind)];
    kinds.into_iter().filter(|(_, noticed)| !noticed).map(|(kind, _)| kind).collect()
}
