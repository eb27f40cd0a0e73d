//! Writing a model in another encoding: any model that opens in, one GGUF file out.
//!
//! Tensors are read, rounded and written one after the other, so that memory holds one of them at a time. The file
//! appears under its name only when it is whole; until then what is finished is kept beside it (`write.rs`). `plan.rs` says
//! which tensor gets which encoding.

mod collect;
mod encode;
mod errors;
mod imatrix;
mod keys;
mod mlx;
mod order;
mod plan;
mod recipe;
mod recipes;
mod rules;
mod source;
mod vocab;
mod write;

use crate::{Error, Kind, Remedy};
use imatrix::Imatrix;
use nibble_format::gguf::{self, Entry, NewTensor};
use nibble_quant::Registry;
use plan::Job;
use recipe::{Facts, Recipe};
use rules::Rules;
use std::{
    ffi::OsString,
    ops::ControlFlow,
    path::{Path, PathBuf},
};

pub use collect::{Importance, Inputs};
pub use errors::Errors;
pub use mlx::{MlxOptions, quantize_to_mlx};
pub use plan::Note;
pub use recipe::Target;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// What the matrices become. All encodings must have an encoder and a GGUF tensor type.
    pub to: Target,
    /// A file of rules `pattern = encoding`, which go before what `to` says.
    pub rules: Option<PathBuf>,
    /// A GGUF file of column weights (an importance matrix), for the encodings that look at them.
    pub imatrix: Option<PathBuf>,
    /// Whether an output file that is there already is replaced.
    pub force: bool,
}

impl QuantizeOptions {
    /// All matrices in the encoding of that name, and nothing else asked for.
    pub fn encoding(name: &str) -> Self {
        Self { to: Target::Encoding(name.into()), rules: None, imatrix: None, force: false }
    }
}

/// How far it is, in weights (numbers).
#[derive(Clone, Copy, Debug)]
pub struct Progress<'a> {
    /// Weights that are written.
    pub done: u64,
    /// All weights.
    pub total: u64,
    /// The tensor at work.
    pub tensor: &'a str,
}

/// What became of one tensor.
#[derive(Clone, Debug)]
pub struct TensorReport {
    /// Its name in the file.
    pub name: String,
    /// Its numbers.
    pub weights: u64,
    /// Its encoding before.
    pub from: &'static str,
    /// Its encoding now.
    pub to: &'static str,
    /// Its bytes before.
    pub bytes_before: u64,
    /// Its bytes now.
    pub bytes_after: u64,
    /// How far its numbers moved.
    pub errors: Errors,
    /// What is special about it.
    pub note: Note,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Every tensor, in file order.
    pub tensors: Vec<TensorReport>,
    /// How many of them were finished by an earlier run that was interrupted.
    pub resumed: usize,
    /// What the user should know, one sentence each.
    pub warnings: Vec<String>,
}

impl Summary {
    /// All numbers.
    pub fn weights(&self) -> u64 {
        self.tensors.iter().map(|t| t.weights).sum()
    }

    /// Bytes of all tensors before.
    pub fn bytes_before(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_before).sum()
    }

    /// Bytes of all tensors now.
    pub fn bytes_after(&self) -> u64 {
        self.tensors.iter().map(|t| t.bytes_after).sum()
    }

    /// Bits that a weight takes on average, scales and all.
    pub fn bits_per_weight(&self) -> f64 {
        self.bytes_after() as f64 * 8.0 / self.weights().max(1) as f64
    }
}

/// Writes the model at `input` to `output`, its matrices in the encodings that `options` names.
///
/// `input` is a GGUF file (the first one if it is split) or a directory with safetensors. `progress` is told of every
/// few million weights and may stop the work.
///
/// # Errors
/// [`Kind::Usage`] for an encoding that cannot be written and an output that must not be replaced, [`Kind::Load`] for
/// an input that cannot be read or said in a GGUF file, [`Kind::Run`] if writing fails or is stopped. There is no
/// output file after an error, or still the old one. Tensors that were finished stay in `OUTPUT.partial`; another call for
/// the same from the same goes on from there.
pub fn quantize(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
    codecs: &Registry,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Summary, Error> {
    let recipe = Recipe::find(&options.to, options.imatrix.is_some(), codecs)?;
    let rules = options.rules.as_deref().map(|path| Rules::open(path, codecs)).transpose()?;
    check_output(output, options.force)?;
    let mut source = source::open(input, codecs)?;
    check_not_an_input(output, &source.files)?;
    let imatrix = options.imatrix.as_deref().map(|path| Imatrix::open(path, codecs)).transpose()?;
    let facts = Facts::new(&source.entries, imatrix.is_some());
    let jobs = plan::plan(&source.tensors, &facts, &recipe, &rules.unwrap_or_default(), codecs)?;
    source.entries.extend(recipe.file_type.map(|number| Entry::new("general.file_type", number)));
    source.entries.push(Entry::new("general.quantization_version", 2u32));
    let mut warnings = source.warnings;
    warnings.extend(plan::warnings(&jobs));
    warnings.extend(imatrix.iter().flat_map(|imatrix| imatrix.warnings(&jobs, recipe.base)));
    let new = |job: &Job<'_>| NewTensor {
        name: job.tensor.name.clone(),
        shape: job.tensor.data.shape(),
        codec: job.codec,
    };
    let new: Vec<_> = jobs.iter().map(new).collect();
    let layout = gguf::layout(&source.entries, new.iter())?;
    let written = write::write(output, &layout.head, &jobs, &layout.lengths, imatrix.as_ref(), progress)?;
    Ok(Summary { tensors: written.reports, resumed: written.resumed, warnings })
}

/// Refuses an output that cannot become a file or must not be replaced.
fn check_output(output: &Path, force: bool) -> Result<(), Error> {
    let refuse = |what: &str| Err(Error::new(Kind::Usage, format!("{}: {what}", output.display())));
    match std::fs::metadata(output) {
        Ok(found) if found.is_dir() => refuse("expected the name of the file to write, found a directory"),
        Ok(_) if !force => refuse("exists already").map_err(|e| e.with(Remedy::Replace)),
        _ => Ok(()),
    }
}

/// Refuses to write to a file that is being read, under its name or while it is not finished.
fn check_not_an_input(output: &Path, inputs: &[PathBuf]) -> Result<(), Error> {
    for ending in ["", ".partial", ".partial.journal"] {
        let mut name = OsString::from(output);
        name.push(ending);
        let Ok(written) = Path::new(&name).canonicalize() else { continue }; // not there, so not an input
        if inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == written)) {
            let what = "is the input; choose another name for the output";
            return Err(Error::new(Kind::Usage, format!("{}: {what}", written.display())));
        }
    }
    Ok(())
}
