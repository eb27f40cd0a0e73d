//! A model as it lies on disk.

use crate::{Error, Metadata, Problem, names::Meaning};
use nibble_quant::Encoded;
use nibble_tensor::{Bytes, Shape};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

/// A model as it lies on disk, in canonical names.
///
/// Weights share the bytes of the mapped files as far as possible: the files must not be changed while it lives.
#[derive(Debug, Default)]
pub struct Checkpoint {
    /// Where it was opened.
    pub path: PathBuf,
    /// The container's name: `gguf`, `safetensors`.
    pub container: &'static str,
    /// The architecture's canonical name, as GGUF has it: `llama`, `qwen2`, `qwen3moe`, `gemma2`, `qwen35`.
    pub architecture: String,
    /// Hyperparameters and facts, in canonical keys.
    pub metadata: Metadata,
    /// Weights by canonical name.
    pub tensors: BTreeMap<String, Encoded>,
    /// Where the tokenizer is described.
    pub tokenizer: TokenizerSource,
    /// The chat template's source.
    pub chat_template: Option<String>,
    /// Name in the file by canonical name; for stacked experts the name of the first one.
    pub file_names: BTreeMap<String, String>,
    /// Tensors of the file whose meaning is not known, by their names in it. Something may be missing from the model.
    pub unused: Vec<String>,
    /// Tensors that are known not to matter for text: rotary tables, vision towers, layers that only draft tokens.
    pub ignored: Vec<String>,
    /// The files with weights, and their sizes in bytes.
    pub files: Vec<(PathBuf, u64)>,
    /// Weights that the file has but that cannot be read; none, unless [`crate::OpenOptions::keep_broken`] asks for them.
    pub broken: Broken,
}

/// Weights that cannot be read, and why.
#[derive(Debug, Default)]
pub struct Broken {
    /// One for each cause.
    pub errors: Vec<Error>,
    /// The canonical names of all weights that they concern.
    pub names: BTreeSet<String>,
    /// The tensors of the file that they concern, by the name of what belongs together.
    known: BTreeSet<String>,
    /// Whether they are kept.
    keep: bool,
}

impl Broken {
    pub(crate) fn new(keep: bool) -> Self {
        Self { keep, ..Self::default() }
    }

    /// Keeps the one thing that is wrong with some tensors, given as name in the file and canonical name, unless something
    /// is already known to be wrong with them.
    ///
    /// # Errors
    /// The error itself, if none are kept.
    pub(crate) fn add(
        &mut self,
        tensors: impl IntoIterator<Item = (String, String)>,
        error: Error,
    ) -> Result<(), Error> {
        if !self.keep {
            return Err(error);
        }
        let mut new = false;
        for (name, canonical) in tensors {
            new |= self.known.insert(name);
            self.names.insert(canonical);
        }
        if new {
            self.errors.push(error);
        }
        Ok(())
    }
}

/// The description of a tokenizer.
#[derive(Clone, Debug, Default)]
pub enum TokenizerSource {
    /// In the metadata, as `tokenizer.ggml.*`.
    Metadata,
    /// As Hugging Face files.
    Json {
        /// `tokenizer.json`
        tokenizer: Bytes,
        /// `tokenizer_config.json`
        config: Option<Bytes>,
    },
    /// Not there.
    #[default]
    None,
}

impl Checkpoint {
    /// Bytes of all weights.
    pub fn weight_bytes(&self) -> u64 {
        self.tensors.values().map(|tensor| tensor.byte_len() as u64).sum()
    }

    /// Files a tensor under its meaning; experts wait in `experts` until all of them are there.
    pub(crate) fn place(
        &mut self,
        file_name: &str,
        meaning: Meaning,
        experts: &mut BTreeMap<String, BTreeMap<usize, (String, Encoded)>>,
        tensor: impl FnOnce() -> Result<Option<Encoded>, Error>,
    ) -> Result<(), Error> {
        match meaning {
            Meaning::Ignored => self.ignored.push(file_name.to_owned()),
            Meaning::Unknown => self.unused.push(file_name.to_owned()),
            Meaning::Weight(name) => match tensor()? {
                Some(tensor) => self.insert(name, file_name.to_owned(), tensor)?,
                None => self.unused.push(file_name.to_owned()),
            },
            Meaning::Expert(name, expert) => match tensor()? {
                Some(tensor) => {
                    experts.entry(name).or_default().insert(expert, (file_name.to_owned(), tensor));
                }
                None => self.unused.push(file_name.to_owned()),
            },
        }
        Ok(())
    }

    /// Files a weight, which must be the only one of its name.
    pub(crate) fn insert(&mut self, name: String, file_name: String, tensor: Encoded) -> Result<(), Error> {
        if let Some(other) = self.file_names.get(&name) {
            let problem =
                Problem::expected(format!("one tensor that is `{name}`"), format!("also `{other}`"));
            return Err(problem.at(format!("tensor `{file_name}`")));
        }
        self.file_names.insert(name.clone(), file_name);
        self.tensors.insert(name, tensor);
        Ok(())
    }

    /// Files the experts that `place` collected, stacked `[E, N, K]` without copying them.
    pub(crate) fn stack(
        &mut self,
        experts: BTreeMap<String, BTreeMap<usize, (String, Encoded)>>,
        count: Option<usize>,
    ) -> Result<(), Error> {
        for (name, matrices) in experts {
            let expected = count.unwrap_or(matrices.len());
            let place = |problem: Problem| problem.at(format!("tensor `{name}`"));
            if matrices.len() != expected || !matrices.keys().copied().eq(0..expected) {
                let wanted = format!("experts 0 to {}", expected.saturating_sub(1));
                return Err(place(Problem::expected(wanted, format!("{} of them", matrices.len()))));
            }
            let (mut file_names, tensors): (Vec<_>, Vec<_>) = matrices.into_values().unzip();
            let stack = Encoded::stack(&tensors).ok_or_else(|| {
                place(Problem::expected("experts of one shape and encoding", "different ones"))
            })?;
            self.insert(name, file_names.swap_remove(0), stack)?;
        }
        Ok(())
    }

    /// Takes the gates and the ups of experts that are stored in one tensor `[E, 2 * F, D]` apart, and their biases
    /// `[E, 2 * F]`, without copying.
    pub(crate) fn split_gate_up(&mut self) -> Result<(), Error> {
        let fused: Vec<String> =
            self.tensors.keys().filter(|n| n.contains(".moe.gate_up")).cloned().collect();
        for name in fused {
            let (Some(tensor), Some(file_name)) = (self.tensors.remove(&name), self.file_names.remove(&name))
            else {
                continue;
            };
            let place = |problem: Problem| problem.at(format!("tensor `{file_name}`"));
            let shape = tensor.shape();
            let &[experts, rows, ref inner @ ..] = shape.dims() else {
                return Err(place(Problem::expected("shape [experts, 2 * width, in]", shape)));
            };
            if rows % 2 != 0 || tensor.parts().len() != 1 {
                return Err(place(Problem::expected("as many rows for gates as for ups", rows)));
            }
            let half = Shape::new(&[&[rows / 2], inner].concat()).ok_or_else(|| place(Problem::Overflow))?;
            let bytes = &tensor.parts()[0];
            let len = bytes.len() / experts / 2;
            for (which, part) in ["gate", "up"].into_iter().enumerate() {
                let matrices: Result<Vec<_>, _> = (0..experts)
                    .map(|e| (2 * e + which) * len)
                    .map(|at| Encoded::new(&file_name, half, tensor.codec(), bytes.slice(at..at + len)))
                    .collect();
                let stack = Encoded::stack(&matrices?).ok_or_else(|| place(Problem::Overflow))?;
                let stack = if tensor.is_owned() { stack.owned() } else { stack };
                self.insert(name.replace("gate_up", part), file_name.clone(), stack)?;
            }
        }
        Ok(())
    }
}
