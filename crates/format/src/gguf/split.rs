//! Models in several files: `NAME-00001-of-00003.gguf`, each a GGUF file with some of the tensors.

use super::GgufFile;
use crate::{Error, OpenOptions, Problem, Value, map};
use nibble_quant::Registry;
use std::{collections::HashSet, path::PathBuf};

/// The number of shards a file says it belongs to; 1 if it says nothing.
pub(super) fn count(file: &GgufFile) -> Result<usize, Error> {
    Ok(integer(file, "split.count")?.unwrap_or(1).max(1))
}

/// A file and, if it is the first of several, the others.
pub(super) fn with_shards(
    first: GgufFile,
    codecs: &Registry,
    options: &OpenOptions,
) -> Result<Vec<GgufFile>, Error> {
    let count = count(&first)?;
    if count == 1 {
        return Ok(vec![first]);
    }
    let prefix = check_shard(&first, 0, count)?;
    let expected_tensors = integer(&first, "split.tensors.count")?;
    let path = first.path.clone();
    let mut files = vec![first];
    for index in 1..count {
        let path = shard_path(&path, &prefix, index, count);
        let shard = GgufFile::parse(map::map(&path)?, &path, codecs, options.type_42)?;
        check_shard(&shard, index, count)?;
        files.push(shard);
    }
    let mut names = HashSet::new();
    for file in &files {
        for tensor in &file.tensors {
            if !names.insert(tensor.name.as_str()) {
                let place = format!("{}: tensor `{}`", file.path.display(), tensor.name);
                return Err(Problem::expected("a tensor of no other shard", "it in two shards").at(place));
            }
        }
    }
    match expected_tensors {
        Some(expected) if expected != names.len() => {
            let expected = format!("{expected} tensors in {count} shards");
            Err(Problem::expected(expected, names.len()).at_path(&path))
        }
        _ => Ok(files),
    }
}

/// Checks that a file is shard `index` of `count`, and returns the prefix of its name.
fn check_shard(file: &GgufFile, index: usize, count: usize) -> Result<String, Error> {
    let found = (integer(file, "split.no")?.unwrap_or(0), self::count(file)?);
    if found != (index, count) {
        let found = format!("shard {} of {}", found.0.saturating_add(1), found.1);
        let expected = format!("shard {} of {count}; open the first one", index + 1);
        return Err(Problem::expected(expected, found).at_path(&file.path));
    }
    let ending = ending(index, count);
    let name = file.path.file_name().unwrap_or_default().to_string_lossy();
    match name.strip_suffix(&ending) {
        Some(prefix) => Ok(prefix.to_owned()),
        None => Err(Problem::expected(format!("a name that ends in `{ending}`"), name).at_path(&file.path)),
    }
}

fn ending(index: usize, count: usize) -> String {
    format!("-{:05}-of-{count:05}.gguf", index + 1)
}

fn shard_path(first: &std::path::Path, prefix: &str, index: usize, count: usize) -> PathBuf {
    first.with_file_name(format!("{prefix}{}", ending(index, count)))
}

/// A count in a `split.` key; five digits in a file name are enough for all.
fn integer(file: &GgufFile, key: &str) -> Result<Option<usize>, Error> {
    match file.get(key) {
        None => Ok(None),
        Some(Value::Int(n)) if (0..100_000_000).contains(n) => Ok(Some(*n as usize)),
        Some(other) => {
            let place = format!("{}: key `{key}`", file.path.display());
            Err(Problem::expected("a small integer", other).at(place))
        }
    }
}
