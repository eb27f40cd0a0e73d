//! Which tensor gets which encoding.
//!
//! | tensor | encoding |
//! |---|---|
//! | matrix | the one asked for |
//! | matrix whose rows are no whole number of its blocks | the next one in [`FALLBACK`] that fits, else f16 |
//! | output matrix, or the embedding if it serves as one, when less than 6 bits a weight are asked for | q6_k, or q8_0 if that does not fit |
//! | matrix with a factor of its own (`.scale`: ternary models) | as it is |
//! | norms, biases, routers, short convolutions, all else with one dimension | f32, or as it is if it was quantized |
//!
//! A matrix that is quantized already is copied if it is in the wanted encoding; else it is rounded a second time, which
//! costs quality and is reported.

use super::source::Tensor;
use crate::{Error, Kind};
use nibble_quant::{Codec, Kind as CodecKind, Registry, Spec};
use nibble_tensor::Shape;
use std::collections::HashSet;

/// What takes the place of an encoding whose blocks are too long for a row: about as many bits in smaller blocks.
const FALLBACK: &[(&str, &str)] = &[
    ("q2_k", "iq4_nl"),
    ("q3_k", "iq4_nl"),
    ("iq4_xs", "iq4_nl"),
    ("q4_k", "q5_0"),
    ("q5_k", "q5_1"),
    ("q6_k", "q8_0"),
    ("tq1_0", "q4_0"),
    ("tq2_0", "q4_0"),
];

/// Parts of names of matrices that decide too much, or are too small, to be rounded.
const NEVER: &[&str] = &["_norm.", "ffn_gate_inp", "ssm_conv1d", "shortconv.conv"];

/// An encoding of activations and one of exact numbers: they have encoders, but no file has matrices in them.
const NOT_FOR_FILES: &[&str] = &["q8_k", "f64"];

/// Below this many bits a weight, the output matrix gets more.
const HEAD_BITS: f64 = 6.0;

/// What is special about a tensor's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// Nothing.
    None,
    /// Its rows are no whole number of blocks of the encoding that was asked for.
    Fallback,
    /// It is the output matrix, for which fewer than 6 bits are too few.
    Head,
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
    fallback: bool,
}

/// The encoding of that name, if it can be written to a GGUF file.
pub(super) fn target(name: &str, codecs: &Registry) -> Result<&'static dyn Codec, Error> {
    let writable = |codec: &&dyn Codec| {
        let spec = codec.spec();
        codec.encoder().is_some() && spec.gguf.is_some() && !NOT_FOR_FILES.contains(&spec.name)
    };
    let name = name.to_ascii_lowercase();
    if let Some(codec) = codecs.by_name(&name).filter(writable) {
        return Ok(codec);
    }
    let found = match codecs.by_name(&name) {
        Some(_) => format!("`{name}`, which can only be read"),
        None => format!("`{name}`"),
    };
    let known: Vec<_> = codecs.iter().filter(writable).map(|codec| codec.spec().name).collect();
    Err(Error::new(Kind::Usage, format!("encoding: expected one of {}, found {found}", known.join(", "))))
}

/// What becomes of each tensor, in order.
///
/// # Errors
/// If an encoding that is needed is not registered.
pub(super) fn plan<'a>(
    tensors: &'a [Tensor],
    target: &'static dyn Codec,
    codecs: &Registry,
) -> Result<Vec<Job<'a>>, Error> {
    let names: HashSet<&str> = tensors.iter().map(|t| t.name.as_str()).collect();
    let tied = !names.contains("output.weight");
    let is_head = |name: &str| name == "output.weight" || (tied && name == "token_embd.weight");
    let scaled = |name: &str| {
        name.strip_suffix(".weight").is_some_and(|base| names.contains(format!("{base}.scale").as_str()))
    };
    let choose = |tensor: &'a Tensor| {
        let (from, shape) = (tensor.data.codec(), tensor.data.shape());
        let quantized = from.kind() != CodecKind::Float;
        if quantized && (scaled(&tensor.name) || !is_matrix(&tensor.name, &shape)) {
            return Ok(Job { tensor, codec: from, note: Note::Copied, fallback: false });
        }
        if !is_matrix(&tensor.name, &shape) {
            return Ok(Job { tensor, codec: named("f32", codecs)?, note: Note::None, fallback: false });
        }
        let more = is_head(&tensor.name) && bits(target.spec()) < HEAD_BITS;
        let wanted = if more { named("q6_k", codecs)? } else { target };
        let codec = fitting(wanted, &shape, codecs)?;
        let fallback = codec.spec() != wanted.spec();
        let note = match () {
            () if quantized && codec.spec() == from.spec() => Note::Copied,
            () if quantized => Note::Requantized,
            () if fallback => Note::Fallback,
            () if more => Note::Head,
            () => Note::None,
        };
        Ok(Job { tensor, codec, note, fallback })
    };
    tensors.iter().map(choose).collect()
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

fn bits(spec: &Spec) -> f64 {
    spec.block_bytes as f64 * 8.0 / spec.block_len as f64
}

fn named(name: &str, codecs: &Registry) -> Result<&'static dyn Codec, Error> {
    codecs.by_name(name).ok_or_else(|| {
        Error::new(
            Kind::Usage,
            format!("encoding: `{name}` is needed for some tensors, but is not registered"),
        )
    })
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
    use super::*;
    use nibble_quant::codec;

    #[test]
    fn rows_that_split_a_block_get_the_next_smaller_blocks() {
        let registry = Registry::default();
        let to =
            |name, row_len| fitting(codec(name), &Shape::from([2, row_len]), &registry).unwrap().spec().name;
        assert_eq!([to("q4_k", 512), to("q4_k", 320), to("q4_k", 100)], ["q4_k", "q5_0", "f16"]);
        assert_eq!([to("q5_k", 32), to("q6_k", 32), to("q3_k", 32)], ["q5_1", "q8_0", "iq4_nl"]);
        assert_eq!([to("tq2_0", 64), to("q8_0", 31), to("nvfp4", 32)], ["q4_0", "f16", "f16"]);
    }

    #[test]
    fn an_encoding_that_cannot_be_written_is_refused_with_those_that_can() {
        let message = |name| target(name, &Registry::default()).err().unwrap().to_string();
        assert!(message("iq1_s").ends_with("found `iq1_s`, which can only be read"), "{}", message("iq1_s"));
        assert!(message("q8_k").contains("expected one of f32, f16, bf16, q4_0"), "{}", message("q8_k"));
        assert!(message("q9_9").ends_with("found `q9_9`"));
        assert_eq!(target("Q4_K", &Registry::default()).unwrap().spec().name, "q4_k");
    }

    #[test]
    fn every_fallback_is_a_codec_that_can_be_written() {
        for (from, to) in FALLBACK {
            let (from, to) = (codec(from).spec(), target(to, &Registry::default()).unwrap().spec());
            assert!(from.block_len > to.block_len, "{} -> {}", from.name, to.name);
        }
    }
}
