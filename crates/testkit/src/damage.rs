//! Models with one number that is NaN or infinite: whatever weight it is in, logits must show it.

use crate::{
    ops,
    runner::{Runner, limits},
    tiny::{self, Tiny, VOCAB},
};
use nibble_backend::{Activations, KvType, Limits, Plan};
use nibble_graph::{Attention, Graph, KvLayer, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;

/// Tokens of a prompt that is one step: enough for kernels of many rows.
const PROMPT: usize = 40;

/// Tokens after it, one a step: with two experts of eight a token, each expert is taken.
const ALONE: usize = 16;

/// What a damaged model runs with.
pub fn limits_of(activations: Activations, kv: KvType) -> Limits {
    Limits { activations, check_finite: false, ..limits(PROMPT, PROMPT + ALONE, kv) }
}

/// The weights that one of the last two layers of a model has, and those beside the layers, each as a file with one
/// number damaged: NaN in `f32`, else an infinite scale of a block.
pub fn files(tiny: &Tiny, encoding: &str) -> Vec<(String, Vec<u8>)> {
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
pub fn harms(plan: Box<dyn Plan>) -> bool {
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
///
/// # Panics
/// If it breaks a rule of the graph.
pub fn sink() -> Graph {
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
pub fn sink_shows(plan: &mut dyn Plan) -> bool {
    let graph = sink();
    let runs = [([1, 1], 2), ([PROMPT, 1], 1)];
    let mut rows = runs.into_iter().flat_map(|(counts, steps)| ops::run_plan(plan, &graph, counts, steps));
    rows.all(|row| row[..32].iter().all(|x| x.is_finite()) && row[32..].iter().all(|x| x.is_nan()))
}

/// The kinds of steps of a plan of a damaged model whose logits are all finite.
pub fn unnoticed(plan: Box<dyn Plan>) -> Vec<&'static str> {
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
