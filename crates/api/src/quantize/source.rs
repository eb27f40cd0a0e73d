//! What is to be written: keys and tensors as a GGUF file has them, whatever they come from.

use super::{
    keys,
    order::{Order, order},
    vocab,
};
use crate::{Error, Kind};
use nibble_format::{
    Checkpoint, OpenOptions,
    gguf::{self, Entry},
    gguf_name,
};
use nibble_quant::{Codec, Encoded, Registry};
use nibble_tensor::Shape;
use std::path::{Path, PathBuf};

/// A tensor in the encoding it comes in.
pub(super) struct Tensor {
    /// Its GGUF name.
    pub name: String,
    pub data: Encoded,
    pub order: Order,
}

pub(super) struct Source {
    pub entries: Vec<Entry>,
    pub tensors: Vec<Tensor>,
    /// The files that are read while the output is written.
    pub files: Vec<PathBuf>,
    pub warnings: Vec<String>,
}

/// Numbers that `general.file_type` has for files whose matrices are mostly in an encoding; for people, not for readers.
const FILE_TYPES: &[(&str, u32)] = &[
    ("f32", 0),
    ("f16", 1),
    ("q4_0", 2),
    ("q4_1", 3),
    ("q8_0", 7),
    ("q5_0", 8),
    ("q5_1", 9),
    ("q2_k", 10),
    ("q3_k", 11),
    ("q4_k", 14),
    ("q5_k", 16),
    ("q6_k", 18),
    ("iq4_nl", 25),
    ("iq4_xs", 30),
    ("bf16", 32),
    ("tq1_0", 36),
    ("tq2_0", 37),
    ("mxfp4", 38),
    ("nvfp4", 39),
    ("q1_0", 40),
    ("q2_0", 41),
];

/// Opens the input.
///
/// # Errors
/// If it cannot be read, or cannot be said in a GGUF file.
pub(super) fn open(input: &Path, target: &'static dyn Codec, codecs: &Registry) -> Result<Source, Error> {
    let mut source = match input.is_dir() {
        true => from_checkpoint(&nibble_format::open(input, codecs)?, codecs)?,
        false => from_gguf(input, codecs)?,
    };
    let file_type = FILE_TYPES.iter().find(|(name, _)| *name == target.spec().name);
    source.entries.extend(file_type.map(|(_, number)| Entry::new("general.file_type", *number)));
    source.entries.push(Entry::new("general.quantization_version", 2u32));
    if let Some(empty) = source.tensors.iter().find(|t| t.data.shape().elements() == 0) {
        let what =
            format!("tensor `{}`: expected numbers, found none (shape {})", empty.name, empty.data.shape());
        return Err(Error::new(Kind::Load, format!("{}: {what}", input.display())));
    }
    Ok(source)
}

fn from_gguf(input: &Path, codecs: &Registry) -> Result<Source, Error> {
    let files = gguf::open_files(input, codecs, &OpenOptions::default())?;
    let replaced = |key: &str| {
        key == "general.file_type" || key == "general.quantization_version" || key.starts_with("split.")
    };
    let entries = files[0].entries.iter().filter(|entry| !replaced(&entry.key)).cloned().collect();
    let mut tensors = vec![];
    for file in &files {
        for info in &file.tensors {
            let data = file.tensor(info, codecs)?.ok_or_else(|| {
                let path = file.path.display();
                let what = "expected weights, found plain integers, which cannot be copied";
                Error::new(Kind::Load, format!("{path}: tensor `{}`: {what}", info.name))
            })?;
            if file.factor(info)?.is_some() {
                let what = "expected blocks that stand alone, found i2_s, whose factor GGUF keeps in no other encoding";
                return Err(Error::new(
                    Kind::Load,
                    format!("{}: tensor `{}`: {what}", file.path.display(), info.name),
                ));
            }
            tensors.push(Tensor { name: info.name.clone(), data, order: Order::default() });
        }
    }
    let files = files.into_iter().map(|file| file.path).collect();
    Ok(Source { entries, tensors, files, warnings: vec![] })
}

fn from_checkpoint(checkpoint: &Checkpoint, codecs: &Registry) -> Result<Source, Error> {
    let path = checkpoint.path.display();
    let (mut entries, mut warnings) = keys::entries(checkpoint)?;
    let rows = checkpoint.tensors.get("embed").map_or(0, |embed| embed.shape().rows());
    match vocab::entries(checkpoint, rows)? {
        Some(vocab) => entries.extend(vocab),
        None => warnings.push(format!("{path}: no tokenizer was found, so the output has none")),
    }
    if let Some(first) = checkpoint.unused.first() {
        let count = checkpoint.unused.len();
        warnings.push(format!("{path}: {count} tensors are not known and left out, such as `{first}`"));
    }
    let mut names: Vec<&String> = checkpoint.tensors.keys().collect();
    names.sort_by_key(|name| (layer(name).map(|(number, _)| number), *name));
    let mut tensors = vec![];
    for name in names {
        let data = checkpoint.tensors[name].clone();
        let inner = layer(name).map_or(name.as_str(), |(_, inner)| inner);
        let order = order(inner, data.shape().dims(), &checkpoint.architecture, &checkpoint.metadata)?;
        let gguf = gguf_name(name, &checkpoint.architecture).ok_or_else(|| {
            let what =
                format!("GGUF files of the architecture {} have no name for it", checkpoint.architecture);
            Error::new(Kind::Load, format!("{path}: tensor `{name}`: {what}"))
        })?;
        tensors.push(Tensor { name: gguf, data, order });
    }
    if let Some(factors) = keys::rope_factors(&checkpoint.metadata)? {
        tensors.insert(0, f32_tensor("rope_freqs.weight", &factors, codecs)?);
    }
    let files = checkpoint.files.iter().map(|(path, _)| path.clone()).collect();
    Ok(Source { entries, tensors, files, warnings })
}

/// `layer.3.attn.q` -> 3, `attn.q`
pub(super) fn layer(name: &str) -> Option<(usize, &str)> {
    let (number, inner) = name.strip_prefix("layer.")?.split_once('.')?;
    Some((number.parse().ok()?, inner))
}

fn f32_tensor(name: &str, numbers: &[f32], codecs: &Registry) -> Result<Tensor, Error> {
    let f32 =
        codecs.by_name("f32").ok_or_else(|| Error::new(Kind::Usage, "encoding: `f32` is not registered"))?;
    let data = Encoded::encode(name, Shape::from([numbers.len()]), f32, numbers, None);
    let data = data.map_err(|e| Error::new(Kind::Load, e.to_string()))?;
    Ok(Tensor { name: name.into(), data, order: Order::default() })
}
