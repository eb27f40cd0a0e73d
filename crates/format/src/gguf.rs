//! `gguf`: one file with typed keys and tensors, perhaps split into shards.
//!
//! Source: the GGUF specification and the reference reader; versions 2 and 3, either byte order. Every count, length,
//! product and offset is checked against the bytes left in the file before anything is allocated or looped over.

mod cursor;
mod entry;
mod read;
mod split;
mod tables;
mod tiling;
mod types;
mod write;

pub use entry::{Entry, ValueType};
pub use read::{GgufFile, TensorInfo};
pub use write::{Layout, NewTensor, WriteData, WriteTensor, layout, write, write_to};

use crate::{
    Checkpoint, Container, Error, Metadata, OpenOptions, Problem, TokenizerSource, Value, keys, map, names,
    prism::Prism,
    repack::{Repack, check_budget},
};
use nibble_quant::Registry;
use nibble_tensor::Bytes;
use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
};

/// The container.
pub(crate) struct Gguf;

impl Container for Gguf {
    fn name(&self) -> &'static str {
        "gguf"
    }

    fn about(&self) -> &'static str {
        "one file, or its shards, with every ggml type, PrismML's (rotated or not) and BitNet's `i2_s`, TL1 and TL2"
    }

    fn recognizes(&self, _path: &Path, head: Option<&[u8]>) -> bool {
        head.is_some_and(|head| head.starts_with(read::MAGIC))
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        checkpoint(path, open_files(path, codecs, options)?, codecs, options)
    }
}

/// Maps and reads a GGUF file, with all its shards if it is split, without giving anything canonical names.
///
/// # Errors
/// One that names file, key or tensor, what was expected and what was found.
pub fn open_files(path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Vec<GgufFile>, Error> {
    let first = GgufFile::parse(map::map(path)?, path, codecs, options.type_42)?;
    let files = split::with_shards(first, codecs, options)?;
    let tables: Vec<_> = files.iter().flat_map(GgufFile::tables).collect();
    let own = if tables.is_empty() { None } else { tiling::beside(path)? };
    let tilings = own.unwrap_or_else(|| tiling::published(&tables).to_vec());
    files.into_iter().map(|file| file.with_tilings(&tilings, false)).collect()
}

/// Opens a file that is in memory; it must not be split.
pub(crate) fn open_bytes(
    bytes: Bytes,
    path: &Path,
    codecs: &Registry,
    options: &OpenOptions,
) -> Result<Checkpoint, Error> {
    let file = GgufFile::parse(bytes, path, codecs, options.type_42)?;
    if split::count(&file)? > 1 {
        return Err(Problem::expected("a whole model", "one shard of a split file").at_path(path));
    }
    let tables: Vec<_> = file.tables().collect();
    let file = file.with_tilings(tiling::published(&tables), true)?;
    checkpoint(path, vec![file], codecs, options)
}

fn checkpoint(
    path: &Path,
    mut files: Vec<GgufFile>,
    codecs: &Registry,
    options: &OpenOptions,
) -> Result<Checkpoint, Error> {
    let place = path.display().to_string();
    let entries = files.first_mut().map(|first| std::mem::take(&mut first.entries)).unwrap_or_default();
    let embed = files.iter().flat_map(|f| &f.tensors).find(|t| t.name == "token_embd.weight");
    let vocab = embed.map(|t| t.shape.rows());
    let (architecture, mut metadata) = canonical_keys(entries, vocab).map_err(|e| e.within(&place))?;
    let prism = Prism::take(&mut metadata).map_err(|e| e.within(&place))?;
    let chat_template = metadata.find_text("tokenizer.chat_template").map_err(|e| e.within(&place))?;
    let mut checkpoint = Checkpoint {
        path: path.to_owned(),
        container: Gguf.name(),
        chat_template: chat_template.map(str::to_owned),
        tokenizer: tokenizer(&metadata),
        files: files.iter().map(|f| (f.path.clone(), f.bytes.len() as u64)).collect(),
        ..Checkpoint::default()
    };
    let layers = metadata.usize_or("block_count", usize::MAX).map_err(|e| e.within(&place))?;
    let mut experts = BTreeMap::new();
    let needed = files.iter().map(|file| unpacked_bytes(file, codecs)).sum::<Result<u64, Error>>();
    let budget = |needed| check_budget(needed, options.unpack_budget, "use a machine with more");
    needed.and_then(budget).map_err(|e| e.within(&place))?;
    for file in &files {
        let of_tables = file.tensors.iter().filter(|tensor| tensor.table.is_some());
        let factors: HashSet<_> = of_tables.map(|tensor| tables::factor_name(&tensor.name)).collect();
        for tensor in file.tensors.iter().filter(|tensor| !factors.contains(&tensor.name)) {
            let meaning = names::from_gguf(&tensor.name, &architecture, layers);
            let within = |e: Error| e.within(file.path.display().to_string());
            if let Some(factor) = file.factor(tensor).map_err(within)? {
                let own = names::with_ending(&meaning, ".scale");
                checkpoint.place(&tensor.name, own, &mut experts, || Ok(Some(factor))).map_err(within)?;
            }
            let placed =
                checkpoint.place(&tensor.name, meaning, &mut experts, || file.tensor(tensor, codecs));
            placed.map_err(within)?;
        }
    }
    let count = metadata.find_int("expert_count").map_err(|e| e.within(&place))?;
    checkpoint.stack(experts, count).map_err(|e| e.within(&place))?;
    checkpoint.split_gate_up().map_err(|e| e.within(&place))?;
    checkpoint.architecture = architecture;
    if let Some(prism) = prism {
        prism.apply(&mut checkpoint, &metadata).map_err(|e| e.within(&place))?;
    }
    checkpoint.metadata = metadata;
    Ok(checkpoint)
}

/// Bytes of what is written anew.
fn unpacked_bytes(file: &GgufFile, codecs: &Registry) -> Result<u64, Error> {
    let bytes = |tensor| Ok(file.repack(tensor, codecs)?.map_or(0, |repack: Repack<'_>| repack.bytes()));
    let sum: Result<u64, Error> = file.tensors.iter().map(bytes).sum();
    sum.map_err(|e| e.within(file.path.display().to_string()))
}

fn tokenizer(metadata: &Metadata) -> TokenizerSource {
    match (metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.huggingface.json")) {
        (Some(_), _) => TokenizerSource::Metadata,
        (None, Some(Value::Text(json))) => {
            TokenizerSource::Json { tokenizer: Bytes::from(json.clone()), config: None }
        }
        _ => TokenizerSource::None,
    }
}

/// The architecture and the keys of a file, those of its architecture without the prefix.
fn canonical_keys(entries: Vec<Entry>, vocab: Option<usize>) -> Result<(String, Metadata), Error> {
    let mut metadata = Metadata::default();
    let named = entries.iter().find(|entry| entry.key == "general.architecture").map(|entry| &entry.value);
    let architecture = match named {
        Some(Value::Text(name)) => name.clone(),
        Some(other) => return Err(Problem::expected("text", other).at("key `general.architecture`")),
        None => return Err(Problem::Missing("text".into()).at("key `general.architecture`")),
    };
    for entry in entries {
        let place = || format!("key `{}`", entry.key);
        let own = entry.key.strip_prefix(&architecture).and_then(|key| key.strip_prefix('.'));
        let key = own.filter(|key| !key.is_empty()).unwrap_or(&entry.key);
        if metadata.values.contains_key(key) {
            return Err(Problem::Duplicate.at(place()));
        }
        metadata.values.insert(key.to_owned(), entry.value);
    }
    keys::complete_gguf(&mut metadata, &architecture, vocab)?;
    Ok((architecture, metadata))
}
