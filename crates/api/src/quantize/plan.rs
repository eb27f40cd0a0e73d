//! Which tensor gets which encoding.
//!
//! | tensor | encoding |
//! |---|---|
//! | matrix that a rule of the user matches | the one of the rule |
//! | other matrix | the one that the recipe says (`recipe.rs`) |
//! | matrix whose rows are no whole number of its blocks | the next one in [`FALLBACK`] that fits, else f16 |
//! | matrix with a factor of its own (`.scale`: ternary models) | as it is, or another one in [`TERNARY`], which changes no number |
//! | norms, biases, routers, short convolutions, all else in [`NEVER`] or with one dimension | f32, or as it is in a GGUF file |
//!
//! A matrix that is quantized already is copied if it is in the wanted encoding; else it is rounded a second time, which
//! costs quality and is reported.

use super::{
    recipe::{Facts, Part, Place, Recipe, named},
    rules::Rules,
    source::Tensor,
};
use crate::Error;
use nibble_quant::{Codec, Kind as CodecKind, Registry};
use nibble_tensor::Shape;
use std::collections::HashSet;

/// What takes the place of an encoding whose blocks are too long for a row: about as many bits in smaller blocks. Source:
/// llama.cpp, `src/llama-quant.cpp`.
const FALLBACK: &[(&str, &str)] = &[
    ("q2_k", "q4_0"),
    ("q3_k", "q4_0"),
    ("iq4_xs", "iq4_nl"),
    ("q4_k", "q5_0"),
    ("q5_k", "q5_1"),
    ("q6_k", "q8_0"),
    ("tq1_0", "q4_0"),
    ("tq2_0", "q4_0"),
    ("q2_0", "q4_0"),
];

/// Encodings that hold the digits -1, 0 and 1 exactly.
const TERNARY: &[&str] = &["tq1_0", "tq2_0", "q2_0", "pq2_0", "ptq1_0"];

/// Parts of names of matrices that decide too much, or are too small, to be rounded. Source: the same.
const NEVER: &[&str] = &[
    "_norm.",
    "ffn_gate_inp",
    "ffn_gate_tid2eid.",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd.",
    "token_types.",
    "ssm_conv1d",
    "shortconv.conv",
    "indexer.k_proj.",
    "indexer.q_proj.",
    "time_mix_first.",
    "time_mix_w0.",
    "time_mix_w1.",
    "time_mix_w2.",
    "time_mix_v0.",
    "time_mix_v1.",
    "time_mix_v2.",
    "time_mix_a0.",
    "time_mix_a1.",
    "time_mix_a2.",
    "time_mix_g1.",
    "time_mix_g2.",
    "time_mix_decay_w1.",
    "time_mix_decay_w2.",
    "time_mix_lerp_fused.",
    "attn_rel_b.",
];

/// What is special about a tensor's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing.
    None,
    /// Its rows are no whole number of blocks of the encoding that was asked for.
    Fallback,
    /// It is the output matrix, for which fewer than 6 bits are too few.
    Head,
    /// The file type has another encoding for matrices of its kind.
    Mixed,
    /// A rule of the user says so.
    Rule,
    /// Its bytes were copied, as it was quantized already and there is nothing to gain.
    Copied,
    /// It was quantized already and has been rounded a second time.
    Requantized,
}

/// A tensor and what it will be.
pub(super) struct Job<'a> {
    pub tensor: &'a Tensor,
    pub codec: &'static dyn Codec,
    pub note: Note,
    /// Whether its rows are no whole number of blocks of the encoding it should have.
    pub fallback: bool,
}

/// What becomes of each tensor, in order.
///
/// # Errors
/// If an encoding that is needed is not registered, or a rule of the user matches nothing.
pub(super) fn plan<'a>(
    tensors: &'a [Tensor],
    facts: &Facts,
    recipe: &Recipe,
    rules: &Rules,
    codecs: &Registry,
) -> Result<Vec<Job<'a>>, Error> {
    let names: HashSet<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    let scaled = |name: &str| {
        name.strip_suffix(".weight").is_some_and(|base| names.contains(format!("{base}.scale").as_str()))
    };
    let quantized = |tensor: &Tensor| tensor.data.codec().kind() != CodecKind::Float;
    let stays = |tensor: &Tensor| !is_matrix(&tensor.name, &tensor.data.shape());
    let matrices: Vec<_> = tensors.iter().filter(|t| !stays(t)).collect();
    let stack = |tensor: &Tensor| tensor.data.shape().dims().len() > 2;
    let places: Vec<_> = matrices.iter().map(|t| (t.name.as_str(), stack(t))).collect();
    let mut places = facts.places(&places, !names.contains("output.weight")).into_iter();
    let choose = |tensor: &'a Tensor| {
        let from = tensor.data.codec();
        if stays(tensor) {
            let (codec, note) = match quantized(tensor) {
                true => (from, Note::Copied),
                false if tensor.keep => (from, Note::None),
                false => (named("f32", codecs)?, Note::None),
            };
            return Ok::<_, Error>(Job { tensor, codec, note, fallback: false });
        }
        let place = places.next();
        let (wanted, why) = match rules.find(&tensor.name) {
            Some(codec) => (codec, Note::Rule),
            None => by_recipe(recipe, facts, place.as_ref(), codecs)?,
        };
        let codec = fitting(wanted, &tensor.data.shape(), codecs)?;
        if quantized(tensor) && scaled(&tensor.name) {
            let exact = TERNARY.contains(&codec.spec().name) && codec.spec() != from.spec();
            let (codec, note) = if exact { (codec, Note::None) } else { (from, Note::Copied) };
            return Ok(Job { tensor, codec, note, fallback: false });
        }
        let fallback = codec.spec() != wanted.spec();
        let note = match quantized(tensor) {
            true if codec.spec() == from.spec() => Note::Copied,
            true => Note::Requantized,
            false if fallback => Note::Fallback,
            false => why,
        };
        Ok(Job { tensor, codec, note, fallback })
    };
    let jobs = tensors.iter().map(choose).collect::<Result<_, Error>>()?;
    rules.check_matched()?;
    Ok(jobs)
}

fn by_recipe(
    recipe: &Recipe,
    facts: &Facts,
    place: Option<&Place>,
    codecs: &Registry,
) -> Result<(&'static dyn Codec, Note), Error> {
    let Some(rule) = place.and_then(|place| recipe.rule(facts, place)) else {
        return Ok((recipe.base, Note::None));
    };
    let codec = named(rule.to, codecs)?;
    let note = match rule.part {
        _ if codec.spec() == recipe.base.spec() => Note::None,
        Some(Part::Head) => Note::Head,
        _ => Note::Mixed,
    };
    Ok((codec, note))
}

/// What the user should know of the plan.
pub(super) fn warnings(jobs: &[Job<'_>]) -> Vec<String> {
    let twice: Vec<_> = jobs.iter().filter(|job| job.note == Note::Requantized).collect();
    let fallback: Vec<_> = jobs.iter().filter(|job| job.fallback).collect();
    let mut warnings = vec![];
    if let Some(first) = twice.first() {
        let (count, from, name) = (twice.len(), first.tensor.data.name(), &first.tensor.name);
        warnings.push(format!(
            "{count} tensors were quantized already (`{name}` in {from}) and are rounded a second time, which costs \
             quality; start from an f32, f16 or bf16 model if there is one"
        ));
    }
    if let Some(first) = fallback.first() {
        let (count, to, name) = (fallback.len(), first.codec.spec().name, &first.tensor.name);
        let row_len = first.tensor.data.shape().row_len();
        warnings.push(format!(
            "{count} tensors have rows that are no whole number of blocks and get another encoding (`{name}`, \
             {row_len} numbers a row, in {to})"
        ));
    }
    warnings
}

pub(super) fn is_matrix(name: &str, shape: &Shape) -> bool {
    shape.dims().len() >= 2 && name.ends_with(".weight") && !NEVER.iter().any(|part| name.contains(part))
}

/// `wanted`, or the first encoding after it whose blocks divide a row.
fn fitting(
    wanted: &'static dyn Codec,
    shape: &Shape,
    codecs: &Registry,
) -> Result<&'static dyn Codec, Error> {
    let mut codec = wanted;
    while !shape.row_len().is_multiple_of(codec.spec().block_len) {
        let next = FALLBACK.iter().find(|(from, _)| *from == codec.spec().name);
        codec = named(next.map_or("f16", |(_, to)| to), codecs)?;
    }
    Ok(codec)
}

#[cfg(test)]
mod tests {
    use super::{super::recipe::writable, *};
    use nibble_quant::codec;

    #[test]
    fn rows_that_split_a_block_get_the_next_smaller_blocks() {
        let registry = Registry::default();
        let to =
            |name, row_len| fitting(codec(name), &Shape::from([2, row_len]), &registry).unwrap().spec().name;
        assert_eq!([to("q4_k", 512), to("q4_k", 320), to("q4_k", 100)], ["q4_k", "q5_0", "f16"]);
        assert_eq!([to("q5_k", 32), to("q6_k", 32), to("q3_k", 32)], ["q5_1", "q8_0", "q4_0"]);
        assert_eq!([to("tq2_0", 64), to("q8_0", 31), to("nvfp4", 32)], ["q4_0", "f16", "f16"]);
    }

    #[test]
    fn every_fallback_is_a_codec_that_can_be_written() {
        for (from, to) in FALLBACK {
            let (from, to) = (codec(from).spec(), writable(to, &Registry::default()).unwrap().spec());
            assert!(from.block_len > to.block_len, "{} -> {}", from.name, to.name);
        }
    }
}
