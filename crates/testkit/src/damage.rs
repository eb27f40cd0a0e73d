//! Models with one number that is NaN or infinite: whatever weight it is in, logits must show it.

use crate::{
    runner::{Runner, limits},
    tiny::{self, Tiny, VOCAB},
};
use nibble_backend::{Activations, KvType, Limits, Plan};
use nibble_quant::codec;

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
