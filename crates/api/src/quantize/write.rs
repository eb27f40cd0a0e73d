//! Writing tensors one after the other, so that memory holds one of them and work that was interrupted goes on.

use super::{
    Progress, TensorReport,
    encode::{Failure, encode},
    errors::Errors,
    imatrix::Imatrix,
    mlx::Planes,
    plan::Job,
};
use crate::{Error, Kind};
use nibble_format::{Key, Partial};
use nibble_quant::grouped::Grouped;
use std::{io::Write, ops::ControlFlow, path::Path};

/// What is told of the progress, and may stop the work.
pub(super) type Step<'a> = &'a mut dyn FnMut(Progress<'_>) -> ControlFlow<()>;

/// What was written, and how many tensors of it were there already.
pub(super) struct Written {
    pub reports: Vec<TensorReport>,
    pub resumed: usize,
}

/// Writes `head` and then the tensors, each with the number of its bytes and how many zeros follow them.
///
/// # Errors
/// As [`super::quantize`]. What is finished stays beside `output`, unless the input is at fault.
pub(super) fn write(
    output: &Path,
    head: &[u8],
    jobs: &[Job<'_>],
    lengths: &[(u64, usize)],
    imatrix: Option<&Imatrix>,
    progress: Step<'_>,
) -> Result<Written, Error> {
    let mut file = Partial::open(output).map_err(run)?;
    let mut written = Written { reports: vec![], resumed: 0 };
    let count = jobs.len();
    match write_all(&mut file, head, jobs, lengths, imatrix, progress, &mut written) {
        Ok(()) => {}
        Err(Failure::Bad(error)) => {
            file.discard();
            return Err(error);
        }
        Err(Failure::Stopped(tensor)) => {
            return Err(interrupted(
                file,
                &format!("stopped at tensor `{tensor}`"),
                written.reports.len(),
                count,
            ));
        }
        Err(Failure::Write(error)) => {
            let what = file.error(error).to_string();
            return Err(interrupted(file, &what, written.reports.len(), count));
        }
    }
    file.finish().map_err(run)?;
    Ok(written)
}

/// Keeps what is worth it, and says so.
fn interrupted(file: Partial, what: &str, finished: usize, count: usize) -> Error {
    let rest = match file.path().map(Path::to_owned) {
        Some(path) if finished > 0 => format!(
            "{finished} of {count} tensors are finished and stay in {}, from where the same command goes on",
            path.display()
        ),
        _ => {
            file.discard();
            "nothing was written".into()
        }
    };
    Error::new(Kind::Run, format!("{what}; {rest}"))
}

fn run(error: nibble_format::Error) -> Error {
    Error::new(Kind::Run, error.to_string())
}

fn write_all(
    file: &mut Partial,
    head: &[u8],
    jobs: &[Job<'_>],
    lengths: &[(u64, usize)],
    imatrix: Option<&Imatrix>,
    progress: Step<'_>,
    written: &mut Written,
) -> Result<(), Failure> {
    let bad = |e: nibble_format::Error| Failure::Bad(run(e));
    let key = || {
        let mut hasher = hasher();
        hasher.update(head);
        hasher.finalize().into()
    };
    if file.finished(key).map_err(bad)?.is_none() {
        file.write_all(head).and_then(|()| file.commit(key(), "")).map_err(Failure::Write)?;
    }
    let total = jobs.iter().map(Job::weights).sum();
    let mut done = 0;
    for (job, &(len, padding)) in jobs.iter().zip(lengths) {
        let name = &job.tensor.name;
        let importance =
            imatrix.map(|i| i.weights(name, job.tensor.data.shape())).transpose().map_err(Failure::Bad)?;
        let importance = importance.flatten();
        let key = job.key(importance);
        let found = file.finished(|| key).map_err(bad)?.map(|note| parse(&note));
        let mut step = |weights: u64| {
            done += weights;
            progress(Progress { done, total, tensor: name })
        };
        let errors = match found {
            Some(noted) => {
                let errors = noted.ok_or_else(|| {
                    let what =
                        format!("tensor `{name}`: the journal was written by another program; delete it");
                    Error::new(Kind::Run, what)
                })?;
                written.resumed += 1;
                if step(job.weights()).is_break() {
                    return Err(Failure::Stopped(name.clone()));
                }
                errors
            }
            None => {
                let errors = match Grouped::of(job.codec) {
                    Some(grouped) => {
                        let mut planes = Planes::new(grouped, file);
                        let errors = encode(job, importance, &mut step, &mut planes)?;
                        planes.finish().map_err(Failure::Write)?;
                        errors
                    }
                    None => encode(job, importance, &mut step, file)?,
                };
                let note = format!("{} {} {} {name}", errors.rmse, errors.max, errors.cosine);
                let padded = file.write_all(&vec![0; padding]);
                padded.and_then(|()| file.commit(key, &note)).map_err(Failure::Write)?;
                errors
            }
        };
        written.reports.push(job.report(len, errors));
    }
    Ok(())
}

/// What was noted behind a tensor.
fn parse(note: &str) -> Option<Errors> {
    let mut numbers = note.split(' ').map(|word| word.parse().ok());
    Some(Errors { rmse: numbers.next()??, max: numbers.next()??, cosine: numbers.next()?? })
}

/// Other releases may round otherwise.
fn hasher() -> blake3::Hasher {
    let mut hasher = blake3::Hasher::new();
    hasher.update(env!("CARGO_PKG_VERSION").as_bytes());
    hasher
}

impl Job<'_> {
    fn weights(&self) -> u64 {
        self.tensor.data.shape().elements() as u64
    }

    /// A hash of all that the bytes of the tensor depend on. Parts are told apart by their lengths.
    fn key(&self, importance: Option<&[f32]>) -> Key {
        let (data, order) = (&self.tensor.data, &self.tensor.order);
        let mut hasher = hasher();
        let text =
            format!("{} {} {} {}", self.tensor.name, data.shape(), data.name(), self.codec.spec().name);
        let mut add = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        add(text.as_bytes());
        data.parts().iter().for_each(|part| add(part));
        for order in [&order.rows, &order.columns] {
            let order: Vec<u8> = order.iter().flatten().flat_map(|&n| (n as u64).to_le_bytes()).collect();
            add(&order);
        }
        add(&importance.unwrap_or_default().iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>());
        hasher.finalize().into()
    }

    fn report(&self, len: u64, errors: Errors) -> TensorReport {
        let data = &self.tensor.data;
        TensorReport {
            name: self.tensor.name.clone(),
            weights: self.weights(),
            from: data.name(),
            to: self.codec.spec().name,
            bytes_before: data.byte_len() as u64,
            bytes_after: len,
            errors,
            note: self.note,
        }
    }
}
