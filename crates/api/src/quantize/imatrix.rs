//! Column weights from measured activations.
//!
//! A GGUF file, read or written here, with `general.type` `imatrix` holds two f32 tensors a matrix: `NAME.in_sum2`, sums of squared inputs
//! `[matrices, columns]`, and `NAME.counts`, how many inputs went into each sum `[matrices, 1]`. A weight is their
//! quotient, and 1 where nothing was counted. Source: llama.cpp, `tools/imatrix` and `tools/quantize`.

use super::{
    collect::Importance,
    plan::{Job, is_matrix},
};
use crate::{Error, Kind};
use nibble_format::{
    OpenOptions, Value,
    gguf::{self, Entry, WriteTensor},
};
use nibble_quant::{Codec, Registry};
use nibble_tensor::Shape;
use std::{collections::HashMap, path::Path};

/// Writes a file.
///
/// # Errors
/// [`Kind::Run`] if it cannot be written.
pub(super) fn write(importance: &Importance, path: &Path, text: &str) -> Result<(), Error> {
    let entries = [
        Entry::new("general.type", "imatrix"),
        Entry::new("imatrix.datasets", vec![text.to_owned()]),
        Entry::new("imatrix.chunk_count", importance.chunks),
        Entry::new("imatrix.chunk_size", importance.chunk_len),
    ];
    let (f32, mut tensors) = (nibble_quant::codec("f32"), vec![]);
    for (name, inputs) in &importance.inputs {
        let matrices = inputs.counts.len();
        let bytes =
            |numbers: &mut dyn Iterator<Item = f32>| numbers.flat_map(f32::to_le_bytes).collect::<Vec<u8>>();
        let sums = bytes(&mut inputs.squares.iter().map(|&sum| sum as f32));
        let counts = bytes(&mut inputs.counts.iter().map(|&count| count as f32));
        let columns = inputs.squares.len() / matrices;
        tensors.push(WriteTensor::new(format!("{name}.in_sum2"), [matrices, columns], f32, sums));
        tensors.push(WriteTensor::new(format!("{name}.counts"), [matrices, 1], f32, counts));
    }
    gguf::write(path, &entries, tensors).map_err(|e| Error::new(Kind::Run, e.to_string()))
}

pub(super) struct Imatrix {
    file: String,
    by_name: HashMap<String, Vec<f32>>,
}

impl Imatrix {
    /// Reads a file.
    ///
    /// # Errors
    /// [`Kind::Load`] if it is not such a file, or its tensors do not belong together.
    pub fn open(path: &Path, codecs: &Registry) -> Result<Self, Error> {
        let file = path.display().to_string();
        let files = gguf::open_files(path, codecs, &OpenOptions::default())?;
        let refuse = |what: String| Error::new(Kind::Load, format!("{file}: {what}"));
        if !matches!(files[0].get("general.type"), Some(Value::Text(t)) if t == "imatrix") {
            return Err(refuse("key `general.type`: expected `imatrix`, found another kind of file".into()));
        }
        let mut numbers = HashMap::new();
        for file in &files {
            for info in &file.tensors {
                if let Some(tensor) = file.tensor(info, codecs)? {
                    numbers.insert(info.name.clone(), tensor.decode());
                }
            }
        }
        let mut by_name = HashMap::new();
        for (name, sums) in &numbers {
            let Some(name) = name.strip_suffix(".in_sum2") else { continue };
            let counts =
                numbers.get(&format!("{name}.counts")).filter(|c| sums.len().is_multiple_of(c.len()));
            let counts = counts
                .ok_or_else(|| refuse(format!("tensor `{name}.counts`: missing, or of another size")))?;
            let weights = weights(sums, counts);
            if !weights.iter().all(|w| w.is_finite() && *w >= 0.0) {
                return Err(refuse(format!(
                    "tensor `{name}.in_sum2`: holds numbers that are negative or not finite"
                )));
            }
            by_name.insert(name.to_owned(), weights);
        }
        match by_name.is_empty() {
            true => Err(refuse("expected tensors that end in `.in_sum2`, found none".into())),
            false => Ok(Self { file, by_name }),
        }
    }

    /// The weights of a tensor, if the file has some: as many as columns, for each of its matrices or for all.
    ///
    /// # Errors
    /// If they are not as many as the tensor has columns.
    pub fn weights(&self, name: &str, shape: Shape) -> Result<Option<&[f32]>, Error> {
        let Some(weights) = self.by_name.get(name) else { return Ok(None) };
        let (columns, matrices) = match shape.dims() {
            [matrices, _, columns] => (*columns, *matrices),
            dims => (dims.last().copied().unwrap_or(1), 1),
        };
        if weights.len() == columns || weights.len() == columns * matrices {
            return Ok(Some(weights));
        }
        let found = weights.len();
        let what =
            format!("tensor `{name}`: expected {columns} column weights for each of {matrices} matrices");
        Err(Error::new(Kind::Load, format!("{}: {what}, found {found}", self.file)))
    }

    /// What the user should know of weights that change less than expected.
    pub fn warnings(&self, jobs: &[Job<'_>], base: &'static dyn Codec) -> Vec<String> {
        let mut looking: HashMap<&str, bool> = HashMap::new();
        let mut looks = |codec: &'static dyn Codec| {
            *looking.entry(codec.spec().name).or_insert_with(|| looks_at_weights(codec))
        };
        let all = jobs.iter().filter(|job| is_matrix(&job.tensor.name, &job.tensor.data.shape()));
        let matrices: Vec<_> = all.filter(|job| looks(job.codec)).collect();
        if matrices.is_empty() {
            let name = base.spec().name;
            let what = format!("has no effect, as the rounding of {name} does not look at it");
            return vec![format!("{}: {what}", self.file)];
        }
        let without: Vec<&str> = matrices
            .iter()
            .map(|job| job.tensor.name.as_str())
            .filter(|name| !self.by_name.contains_key(*name))
            .collect();
        let warn = |first| {
            format!("{}: has no weights for {} matrices, such as `{first}`", self.file, without.len())
        };
        without.first().map(warn).into_iter().collect()
    }
}

/// Whether the rounding of a codec depends on column weights.
fn looks_at_weights(codec: &'static dyn Codec) -> bool {
    let (Some(encoder), spec) = (codec.encoder(), codec.spec()) else { return false };
    let row: Vec<f32> = (0..spec.block_len).map(|i| (i as f32 * 0.7).sin() + 0.1).collect();
    let uneven: Vec<f32> = (0..spec.block_len).map(|i| [1.0, 100.0][i % 2]).collect();
    let encode = |weights| {
        let mut bytes = vec![0; spec.block_bytes];
        encoder.encode_row(&row, weights, &mut bytes);
        bytes
    };
    encode(None) != encode(Some(&uneven))
}

fn weights(sums: &[f32], counts: &[f32]) -> Vec<f32> {
    let columns = (sums.len() / counts.len()).max(1);
    let matrix = |(sums, &count): (&[f32], &f32)| -> Vec<f32> {
        sums.iter().map(|&sum| if count > 0.0 { sum / count } else { 1.0 }).collect()
    };
    sums.chunks_exact(columns).zip(counts).flat_map(matrix).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codecs_that_do_not_look_at_weights_are_found_out() {
        let looks = |name| looks_at_weights(nibble_quant::codec(name));
        assert_eq!(["q4_k", "q4_0", "q8_0", "f16"].map(looks), [true, true, false, false]);
    }

    #[test]
    fn weights_are_means_and_one_where_nothing_was_counted() {
        assert_eq!(weights(&[2.0, 4.0, 6.0, 8.0], &[2.0, 0.0]), [1.0, 2.0, 1.0, 1.0]);
    }
}
