//! Writing a model in another encoding: any model that opens in, one GGUF file out.
//!
//! Tensors are read, rounded and written one after the other, so that memory holds one of them at a time. The file
//! appears under its name only when it is whole. `plan.rs` says which tensor gets which encoding.

mod collect;
mod encode;
mod imatrix;
mod keys;
mod order;
mod plan;
mod source;
mod vocab;

use crate::{Error, Kind, Remedy};
use imatrix::Imatrix;
use nibble_format::gguf::{self, WriteTensor};
use nibble_quant::{Codec, Registry, byte_len};
use plan::Job;
use std::{
    cell::RefCell,
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

pub use collect::{Importance, Inputs};
pub use plan::Note;

/// What is wanted.
#[derive(Clone, Debug)]
pub struct QuantizeOptions {
    /// The encoding of the matrices, by its name; it must have an encoder and a GGUF tensor type.
    pub to: String,
    /// A GGUF file of column weights (an importance matrix), for the encodings that look at them.
    pub imatrix: Option<PathBuf>,
    /// Whether an output file that is there already is replaced.
    pub force: bool,
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
    /// The root of the mean squared difference between its numbers before and now.
    pub rmse: f64,
    /// What is special about it.
    pub note: Note,
}

/// What was written.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Every tensor, in file order.
    pub tensors: Vec<TensorReport>,
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

/// Writes the model at `input` to `output`, its matrices in the encoding that `options` names.
///
/// `input` is a GGUF file (the first one if it is split) or a directory with safetensors. `progress` is told of every
/// few million weights and may stop the work.
///
/// # Errors
/// [`Kind::Usage`] for an encoding that cannot be written and an output that must not be replaced, [`Kind::Load`] for
/// an input that cannot be read or said in a GGUF file, [`Kind::Run`] if writing fails or is stopped. There is no
/// output file after an error, or still the old one.
pub fn quantize(
    input: &Path,
    output: &Path,
    options: &QuantizeOptions,
    codecs: &Registry,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Summary, Error> {
    let target = plan::target(&options.to, codecs)?;
    check_output(output, options.force)?;
    let source = source::open(input, target, codecs)?;
    check_not_an_input(output, &source.files)?;
    let imatrix = options.imatrix.as_deref().map(|path| Imatrix::open(path, codecs)).transpose()?;
    let jobs = plan::plan(&source.tensors, target, codecs)?;
    let mut warnings = source.warnings;
    warnings.extend(plan::warnings(&jobs));
    warnings.extend(imatrix.iter().flat_map(|imatrix| imatrix.warnings(&jobs, target)));
    let state = RefCell::new(State {
        progress,
        done: 0,
        total: jobs.iter().map(|job| job.tensor.data.shape().elements() as u64).sum(),
        reports: vec![],
        error: None,
    });
    let tensors = jobs.iter().map(|job| job.write(imatrix.as_ref(), &state)).collect();
    let written = gguf::write(output, &source.entries, tensors);
    let state = state.into_inner();
    match (state.error, written) {
        (Some(error), _) => Err(error),
        (None, Err(error)) => Err(Error::new(Kind::Run, error.to_string())),
        (None, Ok(())) => Ok(Summary { tensors: state.reports, warnings }),
    }
}

/// What the tensors share while they are written one after the other.
struct State<'a> {
    progress: &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
    done: u64,
    total: u64,
    reports: Vec<TensorReport>,
    /// The reason why a tensor could not be written, which the writer passes on as an I/O error only.
    error: Option<Error>,
}

impl<'a> Job<'a> {
    fn write<'b>(&'b self, imatrix: Option<&'b Imatrix>, state: &'b RefCell<State<'_>>) -> WriteTensor<'b> {
        let data = Box::new(move |out: &mut dyn Write| {
            let state = &mut *state.borrow_mut();
            self.write_data(imatrix, state, out).map_err(|error| {
                state.error = Some(error);
                io::Error::other("stopped")
            })
        });
        WriteTensor {
            name: self.tensor.name.clone(),
            shape: self.tensor.data.shape(),
            codec: self.codec,
            data,
        }
    }

    fn write_data(
        &self,
        imatrix: Option<&Imatrix>,
        state: &mut State<'_>,
        out: &mut dyn Write,
    ) -> Result<(), Error> {
        let (name, data) = (&self.tensor.name, &self.tensor.data);
        let importance = imatrix.map(|i| i.weights(name, data.shape())).transpose()?.flatten();
        let mut step = |weights: usize| {
            state.done += weights as u64;
            let now = Progress { done: state.done, total: state.total, tensor: name };
            (state.progress)(now)
        };
        let rmse = encode::encode(self, importance, &mut step, out)?;
        state.reports.push(TensorReport {
            name: name.clone(),
            weights: data.shape().elements() as u64,
            from: data.name(),
            to: self.codec.spec().name,
            bytes_before: data.byte_len() as u64,
            bytes_after: byte_len(&data.shape(), <dyn Codec>::spec(self.codec)).unwrap_or(0) as u64,
            rmse,
            note: self.note,
        });
        Ok(())
    }
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

/// Refuses to replace a file that is being read.
fn check_not_an_input(output: &Path, inputs: &[PathBuf]) -> Result<(), Error> {
    let Ok(output) = output.canonicalize() else { return Ok(()) }; // not there, so not an input
    match inputs.iter().any(|input| input.canonicalize().is_ok_and(|input| input == output)) {
        true => {
            let what = "is the input; choose another name for the output";
            Err(Error::new(Kind::Usage, format!("{}: {what}", output.display())))
        }
        false => Ok(()),
    }
}
