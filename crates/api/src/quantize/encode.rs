//! Rounding one tensor, rows in parallel.

use super::{
    errors::{Errors, Sums},
    order::Order,
    plan::Job,
};
use crate::{Error, Kind};
use nibble_quant::{Codec, Encode, Encoded};
use std::{
    io::{self, Write},
    ops::ControlFlow,
    thread,
};

/// Weights that a thread rounds before the next look at `step`.
const WEIGHTS_AT_ONCE: usize = 1 << 20;

/// Why a tensor was not written.
pub(super) enum Failure {
    /// Someone stopped it, at the tensor of this name.
    Stopped(String),
    /// The output cannot be written.
    Write(io::Error),
    /// What is asked for cannot be done.
    Bad(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Bad(error)
    }
}

/// What a row needs to be rounded.
struct Rows<'a> {
    name: &'a str,
    source: &'a Encoded,
    order: &'a Order,
    target: &'static dyn Codec,
    encoder: Option<&'static dyn Encode>,
    importance: Option<&'a [f32]>,
    row_bytes: usize,
}

/// Writes the bytes of a tensor and returns what the rounding cost.
///
/// `importance` holds a weight for each column, of each matrix if there are several. `step` is told how many weights
/// are done and may stop the work. Rows are independent, so the bytes do not depend on the number of threads.
///
/// # Errors
/// [`Failure::Bad`] with [`Kind::Load`] for numbers that are not finite, and with [`Kind::Run`] for numbers too large for the
/// encoding.
pub(super) fn encode(
    job: &Job<'_>,
    importance: Option<&[f32]>,
    step: &mut dyn FnMut(u64) -> ControlFlow<()>,
    out: &mut dyn Write,
) -> Result<Errors, Failure> {
    let (source, spec) = (&job.tensor.data, job.codec.spec());
    let (rows, row_len) = (source.shape().rows(), source.shape().row_len());
    let copies = source.codec().spec() == spec && job.tensor.order.columns.is_none();
    let work = Rows {
        name: &job.tensor.name,
        source,
        order: &job.tensor.order,
        target: job.codec,
        encoder: if copies { None } else { job.codec.encoder() },
        importance,
        row_bytes: row_len / spec.block_len * spec.block_bytes,
    };
    if !copies && work.encoder.is_none() {
        let what = format!("tensor `{}`: {} cannot be written, only read", work.name, spec.name);
        return Err(Error::new(Kind::Usage, what).into());
    }
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let at_once = (threads * WEIGHTS_AT_ONCE).div_ceil(row_len.max(1)).min(rows).max(1);
    let mut bytes = vec![0; at_once * work.row_bytes];
    let mut sums = vec![Sums::default(); at_once];
    let mut total = Sums::default();
    for first in (0..rows).step_by(at_once) {
        let count = at_once.min(rows - first);
        let (bytes, sums) = (&mut bytes[..count * work.row_bytes], &mut sums[..count]);
        work.round(first, threads, bytes, sums)?;
        sums.iter().for_each(|row| total.add(row));
        out.write_all(bytes).map_err(Failure::Write)?;
        if step((count * row_len) as u64).is_break() {
            return Err(Failure::Stopped(work.name.into()));
        }
    }
    Ok(total.errors(rows * row_len))
}

impl Rows<'_> {
    /// Rounds the rows from `first` on, as many as `sums` has, each thread a run of them.
    fn round(&self, first: usize, threads: usize, bytes: &mut [u8], sums: &mut [Sums]) -> Result<(), Error> {
        let share = sums.len().div_ceil(threads).max(1);
        let parts = bytes.chunks_mut(share * self.row_bytes).zip(sums.chunks_mut(share));
        thread::scope(|scope| {
            let parts: Vec<_> = parts
                .enumerate()
                .map(|(part, (bytes, sums))| scope.spawn(move || self.run(first + part * share, bytes, sums)))
                .collect();
            parts
                .into_iter()
                .try_for_each(|part| part.join().unwrap_or_else(|e| std::panic::resume_unwind(e)))
        })
    }

    fn run(&self, first: usize, bytes: &mut [u8], sums: &mut [Sums]) -> Result<(), Error> {
        let row_len = self.source.shape().row_len();
        let (mut decoded, mut numbers, mut rounded) =
            (vec![0.0; row_len], vec![0.0; row_len], vec![0.0; row_len]);
        for ((row, out), sums) in (first..).zip(bytes.chunks_exact_mut(self.row_bytes)).zip(sums) {
            let from = self.order.rows.as_ref().map_or(row, |rows| rows[row]);
            self.source.decode_row(from, &mut decoded);
            match &self.order.columns {
                Some(columns) => numbers.iter_mut().zip(columns).for_each(|(n, &c)| *n = decoded[c]),
                None => numbers.copy_from_slice(&decoded),
            }
            self.check(&numbers, row, Kind::Load, "holds a number that is not finite; the model is damaged")?;
            *sums = Sums::default();
            let Some(encoder) = self.encoder else {
                out.copy_from_slice(self.source_bytes(from));
                continue;
            };
            encoder.encode_row(&numbers, self.importance(row), out);
            self.target.decode_row(out, &mut rounded);
            self.check(
                &rounded,
                row,
                Kind::Run,
                "holds a number too large for the encoding; choose bf16 or f32",
            )?;
            *sums = Sums::new(&numbers, &rounded);
        }
        Ok(())
    }

    fn check(&self, numbers: &[f32], row: usize, kind: Kind, what: &str) -> Result<(), Error> {
        match numbers.iter().all(|x| x.is_finite()) {
            true => Ok(()),
            false => Err(Error::new(kind, format!("tensor `{}`: row {row} {what}", self.name))),
        }
    }

    fn source_bytes(&self, row: usize) -> &[u8] {
        let (len, parts) = (self.source.row_bytes(), self.source.parts());
        let rows_per_part = self.source.shape().rows() / parts.len();
        let start = row % rows_per_part * len;
        &parts[row / rows_per_part][start..start + len]
    }

    /// The column weights of the matrix that a row belongs to.
    fn importance(&self, row: usize) -> Option<&[f32]> {
        let (all, row_len) = (self.importance?, self.source.shape().row_len());
        let rows_per_matrix = self.source.shape().rows() / (all.len() / row_len);
        let matrix = row / rows_per_matrix;
        Some(&all[matrix * row_len..(matrix + 1) * row_len])
    }
}
