//! What sides that are files have in common.

use crate::{
    side::{Identity, Precision, Prompt, Side},
    trace::Trace,
    weights::Weights,
};
use nibble_api::{Error, Kind};
use nibble_format::safetensors::{SafetensorsFile, TensorInfo};
use nibble_measure::{Hashing, hash_files};
use nibble_tensor::Bytes;
use std::{collections::BTreeMap, path::Path};

/// A prompt and its rows, F32, of the positions that are compared.
pub(crate) struct StoredPrompt {
    pub prompt: Prompt,
    pub rows: Bytes,
}

/// A side that was stored.
pub(crate) struct Stored {
    identity: Identity,
    precision: Precision,
    prompts: Vec<Prompt>,
    rows: Vec<Bytes>,
    /// Of the texts that are traced.
    pub trace: Option<Trace>,
    /// Fingerprints of its weights.
    pub prints: Option<BTreeMap<String, String>>,
}

impl Stored {
    pub fn new(identity: Identity, precision: Precision, stored: Vec<StoredPrompt>) -> Self {
        let (prompts, rows) = stored.into_iter().map(|s| (s.prompt, s.rows)).unzip();
        Self { identity, precision, prompts, rows, trace: None, prints: None }
    }
}

impl Side for Stored {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn precision(&self) -> Precision {
        self.precision
    }

    fn prompts(&self) -> Option<&[Prompt]> {
        Some(&self.prompts)
    }

    fn rows(&mut self, prompt: &Prompt, row: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        let stored = self.prompts.iter().position(|p| p == prompt).map(|i| &self.rows[i]);
        let Some(stored) = stored.filter(|_| prompt.positions() > 0) else {
            let what =
                format!("{}: expected one of its own prompts, found `{}`", self.identity.side, prompt.name);
            return Err(Error::new(Kind::Run, what));
        };
        let mut numbers = vec![0.0; stored.len() / 4 / prompt.positions()];
        for (position, bytes) in (prompt.first..prompt.end).zip(stored.chunks_exact(numbers.len() * 4)) {
            let (words, _) = bytes.as_chunks::<4>();
            numbers.iter_mut().zip(words).for_each(|(x, word)| *x = f32::from_le_bytes(*word));
            row(position, &numbers);
        }
        Ok(())
    }

    fn trace(&mut self, _texts: &[Vec<u32>]) -> Result<Option<Trace>, Error> {
        Ok(self.trace.clone())
    }

    fn weights(&self) -> Option<Weights<'_>> {
        self.prints.as_ref().map(Weights::Prints)
    }
}

/// What is wrong with a file.
pub(crate) fn at(path: &Path, what: String) -> Error {
    Error::new(Kind::Load, format!("{}: {what}", path.display()))
}

/// The tensor `name`, which holds F32.
pub(crate) fn numbers<'a>(file: &'a SafetensorsFile, name: &str) -> Result<&'a TensorInfo, Error> {
    typed(file, name, &["F32"])
}

fn typed<'a>(file: &'a SafetensorsFile, name: &str, dtypes: &[&str]) -> Result<&'a TensorInfo, Error> {
    let found = file.tensors.get(name);
    found.filter(|tensor| dtypes.contains(&tensor.dtype.as_str())).ok_or_else(|| {
        let found = found.map_or("nothing", |tensor| tensor.dtype.as_str());
        at(&file.path, format!("tensor `{name}`: expected {}, found {found}", dtypes.join(" or ")))
    })
}

/// The numbers of the tensor `name`, which holds F64.
pub(crate) fn doubles(file: &SafetensorsFile, name: &str) -> Result<Vec<f64>, Error> {
    let bytes = file.raw(typed(file, name, &["F64"])?);
    Ok(bytes.as_chunks::<8>().0.iter().map(|word| f64::from_le_bytes(*word)).collect())
}

/// The numbers of the tensor `name`, which holds token ids.
pub(crate) fn integers(file: &SafetensorsFile, name: &str) -> Result<Vec<u32>, Error> {
    let tensor = typed(file, name, &["U32", "I32", "I64"])?;
    let bytes = file.raw(tensor);
    let wide: Vec<i64> = match tensor.dtype.as_str() {
        "I64" => bytes.as_chunks::<8>().0.iter().map(|word| i64::from_le_bytes(*word)).collect(),
        _ => bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word).into()).collect(),
    };
    let ids: Result<Vec<u32>, _> = wide.into_iter().map(u32::try_from).collect();
    ids.map_err(|_| {
        at(&file.path, format!("tensor `{name}`: expected token ids, found a negative or larger number"))
    })
}

/// The SHA-256 of a file.
pub(crate) fn sha256(path: &Path) -> Result<String, Error> {
    let hashes = hash_files([path], &mut Hashing::default())?;
    Ok(hashes.into_iter().map(|hash| hash.sha256).collect())
}
