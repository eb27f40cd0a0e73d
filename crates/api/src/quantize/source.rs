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
use nibble_quant::{Encoded, Registry};
use nibble_tensor::Shape;
use std::path::{Path, PathBuf};

/// A tensor in the encoding it comes in.
pub(super) struct Tensor {
    /// Its GGUF name.
    pub name: String,
    pub data: Encoded,
    pub order: Order,
    /// Whether it stays as it is unless it is a matrix; else it is widened to f32.
    pub keep: bool,
}

pub(super) struct Source {
    pub entries: Vec<Entry>,
    pub tensors: Vec<Tensor>,
    /// The files that are read while the output is written.
    pub files: Vec<PathBuf>,
    pub warnings: Vec<String>,
}

/// Opens the input.
///
/// # Errors
/// If it cannot be read, or cannot be said in a GGUF file.
pub(super) fn open(input: &Path, codecs: &Registry) -> Result<Source, Error> {
    let source = match input.is_dir() {
        true => from_checkpoint(&nibble_format::open(input, codecs)?, codecs)?,
        false => from_gguf(input, codecs)?,
    };
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
            if file.factor(info)?.is_some() {
                let what = "expected blocks that stand alone, found BitNet's, whose factor GGUF keeps in no other encoding";
                return Err(Error::new(
                    Kind::Load,
                    format!("{}: tensor `{}`: {what}", file.path.display(), info.name),
                ));
            }
            let data = file.tensor(info, codecs)?.ok_or_else(|| {
                let path = file.path.display();
                let what = "expected weights, found plain integers, which cannot be copied";
                Error::new(Kind::Load, format!("{path}: tensor `{}`: {what}", info.name))
            })?;
            tensors.push(Tensor { name: info.name.clone(), data, order: Order::default(), keep: true });
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
        tensors.push(Tensor { name: gguf, data, order, keep: false });
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
    Ok(Tensor { name: name.into(), data, order: Order::default(), keep: false })
}
