//! A tensor in an encoding: shape, codec and shared bytes.

use crate::{Codec, Error, Problem};
use nibble_tensor::{Bytes, Shape};
use std::fmt;

/// A tensor in an encoding. Cloning is cheap: the bytes are shared.
///
/// Its matrices may lie apart (the experts of a mixture are separate tensors in some files): `parts` are equal slices
/// of the outermost dimension, one part for an ordinary tensor.
#[derive(Clone)]
pub struct Encoded {
    shape: Shape,
    codec: &'static dyn Codec,
    parts: Vec<Bytes>,
    own: bool,
}

/// Bytes that a tensor of `shape` takes in `codec`.
///
/// # Errors
/// [`Problem::Row`] or [`Problem::Strip`] if rows would split a block; [`Problem::Overflow`] past `usize`.
pub fn byte_len(shape: &Shape, codec: &dyn Codec) -> Result<usize, Problem> {
    let (spec, rows) = (codec.spec(), codec.rows());
    let (row_len, block_len) = (shape.row_len(), spec.block_len / rows);
    if !row_len.is_multiple_of(block_len) {
        return Err(Problem::Row { row_len, codec: spec.name, block_len });
    }
    // Those of one matrix: matrices of a stack are apart.
    let of_matrix = shape.dims().iter().rev().nth(1).copied().unwrap_or(1);
    if !of_matrix.is_multiple_of(rows) {
        return Err(Problem::Strip { found: of_matrix, codec: spec.name, rows });
    }
    let strip = (row_len / block_len).checked_mul(spec.block_bytes);
    strip.and_then(|strip| strip.checked_mul(shape.rows() / rows)).ok_or(Problem::Overflow)
}

impl Encoded {
    /// Joins shape, codec and bytes.
    ///
    /// # Errors
    /// If a row splits a block or the number of bytes is not what the shape takes. `name` is the place in the error.
    pub fn new(name: &str, shape: Shape, codec: &'static dyn Codec, bytes: Bytes) -> Result<Self, Error> {
        let spec = codec.spec();
        let expected = byte_len(&shape, codec).map_err(|p| p.at(name))?;
        if bytes.len() != expected {
            let problem =
                Problem::Bytes { found: bytes.len(), shape: shape.to_string(), codec: spec.name, expected };
            return Err(problem.at(name));
        }
        Ok(Self { shape, codec, parts: vec![bytes], own: false })
    }

    /// Rounds `numbers` (row after row) into `codec`, with a weight for each column or none.
    ///
    /// # Errors
    /// [`Problem::NoEncoder`] if the codec only decodes, [`Problem::Row`] if a row splits a block,
    /// [`Problem::Numbers`] if numbers or weights are not as many as the shape says.
    pub fn encode(
        name: &str,
        shape: Shape,
        codec: &'static dyn Codec,
        numbers: &[f32],
        importance: Option<&[f32]>,
    ) -> Result<Self, Error> {
        let spec = codec.spec();
        let encoder = codec.encoder().ok_or_else(|| Problem::NoEncoder(spec.name).at(name))?;
        let count = |what, found, expected| match found == expected {
            true => Ok(()),
            false => Err(Problem::Numbers { what, found, expected }.at(name)),
        };
        count("numbers", numbers.len(), shape.elements())?;
        count("column weights", importance.map_or(shape.row_len(), <[f32]>::len), shape.row_len())?;
        let mut bytes = vec![0; byte_len(&shape, codec).map_err(|p| p.at(name))?];
        if !bytes.is_empty() {
            let row_bytes = bytes.len() / shape.rows();
            let rows = numbers.chunks_exact(shape.row_len()).zip(bytes.chunks_exact_mut(row_bytes));
            rows.for_each(|(row, out)| encoder.encode_row(row, importance, out));
        }
        Self::new(name, shape, codec, bytes.into())
    }

    /// Stacks matrices of one shape and codec along a new outermost dimension without copying them.
    ///
    /// Returns `None` if there are none, or they differ, or they are stacked already.
    pub fn stack(matrices: &[Self]) -> Option<Self> {
        let first = matrices.first()?;
        let same = |m: &Self| m.shape == first.shape && m.name() == first.name() && m.parts.len() == 1;
        if !matrices.iter().all(same) {
            return None;
        }
        let dims: Vec<_> = [matrices.len()].iter().chain(first.shape.dims()).copied().collect();
        let parts = matrices.iter().map(|m| m.parts[0].clone()).collect();
        Some(Self {
            shape: Shape::new(&dims)?,
            codec: first.codec,
            parts,
            own: matrices.iter().any(|m| m.own),
        })
    }

    /// Says that its bytes are memory of this process, not a map of a file: what it takes is to be counted.
    pub fn owned(self) -> Self {
        Self { own: true, ..self }
    }

    /// Whether its bytes are memory of this process.
    pub fn is_owned(&self) -> bool {
        self.own
    }

    /// Row-major shape.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The encoding.
    pub fn codec(&self) -> &'static dyn Codec {
        self.codec
    }

    /// The encoding's name.
    pub fn name(&self) -> &'static str {
        self.codec.spec().name
    }

    /// Bytes in all parts.
    pub fn byte_len(&self) -> usize {
        self.parts.iter().map(Bytes::len).sum()
    }

    /// The parts: equal slices of the outermost dimension, one for most tensors.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Bytes of one row, or of a strip of [`Codec::rows`] rows.
    pub fn row_bytes(&self) -> usize {
        self.codec.strip_bytes(self.shape.row_len())
    }

    /// The bytes of matrix `index` of a stack of matrices `[count, rows, row_len]`; of the whole if it has two
    /// dimensions or fewer (`index` 0).
    pub fn matrix(&self, index: usize) -> &[u8] {
        if self.parts.len() > 1 {
            return &self.parts[index];
        }
        match self.shape.dims() {
            [count, _, _] => {
                let len = self.parts[0].len() / count;
                &self.parts[0][index * len..(index + 1) * len]
            }
            _ => &self.parts[0],
        }
    }

    /// The bytes of one row (of all rows, counted through all matrices), with those of its strip.
    pub fn row(&self, row: usize) -> &[u8] {
        let (len, rows_per_part) = (self.row_bytes(), self.shape.rows() / self.parts.len());
        let part = &self.parts[row / rows_per_part];
        let start = row % rows_per_part / self.codec.rows() * len;
        &part[start..start + len]
    }

    /// The bytes of some rows (of all rows, counted through all matrices) as they lie, shared; `None` if they lie apart or in
    /// strips.
    pub fn shared_rows(&self, rows: std::ops::Range<usize>) -> Option<Bytes> {
        let (len, per_part) = (self.row_bytes(), self.shape.rows() / self.parts.len());
        let part = rows.start / per_part;
        let start = rows.start % per_part;
        let end = start + rows.len();
        let together = self.codec.rows() == 1 && end <= per_part;
        together.then(|| self.parts[part].slice(start * len..end * len))
    }

    /// Decodes one row (of all rows, counted through all matrices) into `out` (`row_len` numbers).
    pub fn decode_row(&self, row: usize, out: &mut [f32]) {
        self.codec.decode_row_of(row % self.codec.rows(), self.row(row), out);
    }

    /// All numbers, row after row.
    pub fn decode(&self) -> Vec<f32> {
        let mut out = vec![0.0; self.shape.elements()];
        for (row, out) in out.chunks_exact_mut(self.shape.row_len().max(1)).enumerate() {
            self.decode_row(row, out);
        }
        out
    }
}

impl fmt::Debug for Encoded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.shape, self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec;

    #[test]
    fn byte_len_rejects_a_split_block() {
        let q8_0 = codec("q8_0");
        assert_eq!(byte_len(&Shape::from([64, 32]), q8_0), Ok(2176));
        let split = byte_len(&Shape::from([64, 33]), q8_0);
        assert_eq!(split, Err(Problem::Row { row_len: 33, codec: "q8_0", block_len: 32 }));
    }

    #[test]
    fn a_strip_of_rows_is_one_stretch_of_blocks() {
        let exl3 = codec("exl3_3_mcg");
        assert_eq!(byte_len(&Shape::from([2, 32, 48]), exl3), Ok(2 * 2 * 3 * 98));
        let strip = Problem::Strip { found: 24, codec: "exl3_3_mcg", rows: 16 };
        assert_eq!(byte_len(&Shape::from([2, 24, 48]), exl3), Err(strip));
        let split = Problem::Row { row_len: 40, codec: "exl3_3_mcg", block_len: 16 };
        assert_eq!(byte_len(&Shape::from([32, 40]), exl3), Err(split));
        let bytes: Vec<u8> = (0..2 * 2 * 98u32).map(|i| ((i * i * 31) >> 3) as u8).collect();
        let tensor = Encoded::new("t", Shape::from([32, 32]), exl3, bytes.clone().into()).unwrap();
        let mut block = [0.0; 256];
        for (i, bytes) in bytes.chunks_exact(98).enumerate() {
            exl3.decode(bytes, &mut block);
            for (row, numbers) in block.chunks_exact(16).enumerate() {
                let mut found = [0.0; 32];
                tensor.decode_row(i / 2 * 16 + row, &mut found);
                assert_eq!(&found[i % 2 * 16..][..16], numbers, "block {i}, row {row}");
            }
        }
    }

    #[test]
    fn encode_refuses_what_does_not_fit() {
        let encode = |codec_name, dims: [usize; 2], numbers: &[f32], importance: Option<&[f32]>| {
            let encoded = Encoded::encode("t", Shape::from(dims), codec(codec_name), numbers, importance);
            encoded.map(|t| t.decode()).map_err(|e| e.problem)
        };
        assert_eq!(encode("q8_0", [2, 32], &[127.0; 64], Some(&[1.0; 32])), Ok(vec![127.0; 64]));
        assert_eq!(encode("f32", [0, 3], &[], None), Ok(vec![]));
        assert_eq!(encode("iq1_s", [1, 256], &[0.0; 256], None), Err(Problem::NoEncoder("iq1_s")));
        let short = Problem::Numbers { what: "numbers", found: 63, expected: 64 };
        assert_eq!(encode("q8_0", [2, 32], &[0.0; 63], None), Err(short));
        let weights = Problem::Numbers { what: "column weights", found: 64, expected: 32 };
        assert_eq!(encode("q8_0", [2, 32], &[0.0; 64], Some(&[1.0; 64])), Err(weights));
        let split = Problem::Row { row_len: 31, codec: "q8_0", block_len: 32 };
        assert_eq!(encode("q8_0", [2, 31], &[0.0; 62], None), Err(split));
    }

    #[test]
    fn a_stack_reads_like_one_tensor() {
        let bytes = |b: u8| Bytes::from(vec![b; 34 * 2]);
        let part = |b| Encoded::new("t", Shape::from([2, 32]), codec("q8_0"), bytes(b)).unwrap();
        let stack = Encoded::stack(&[part(1), part(2), part(3)]).unwrap();
        let joined = [bytes(1), bytes(2), bytes(3)].concat();
        let whole = Encoded::new("t", Shape::from([3, 2, 32]), codec("q8_0"), joined.into()).unwrap();
        assert_eq!(stack.decode(), whole.decode());
        assert_eq!(stack.matrix(2), whole.matrix(2));
    }
}
