//! What can be wrong with encoded bytes.

use thiserror::Error;

/// A problem and the place where it is.
#[derive(Debug, Error)]
#[error("{place}: {problem}")]
pub struct Error {
    /// The tensor, or the codec.
    pub place: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum Problem {
    /// A row would end inside a block.
    #[error("a row of {row_len} numbers is not a whole number of {codec} blocks of {block_len}")]
    Row {
        /// Numbers in a row.
        row_len: usize,
        /// The codec's name.
        codec: &'static str,
        /// Numbers in a block.
        block_len: usize,
    },
    /// Rows would share a block with those of another matrix.
    #[error("a matrix of {found} rows is not a whole number of {codec} strips of {rows}")]
    Strip {
        /// Rows of a matrix.
        found: usize,
        /// The codec's name.
        codec: &'static str,
        /// Rows in a strip.
        rows: usize,
    },
    /// The size does not fit the machine's integers.
    #[error("its size overflows")]
    Overflow,
    /// The bytes are not as many as shape and codec say.
    #[error("holds {found} bytes, but {shape} in {codec} takes {expected}")]
    Bytes {
        /// Bytes there are.
        found: usize,
        /// The shape, as text.
        shape: String,
        /// The codec's name.
        codec: &'static str,
        /// Bytes there should be.
        expected: usize,
    },
    /// The numbers to encode are not as many as the shape says.
    #[error("{found} {what} were given, but its shape takes {expected}")]
    Numbers {
        /// `numbers` or `column weights`.
        what: &'static str,
        /// Numbers there are.
        found: usize,
        /// Numbers there should be.
        expected: usize,
    },
    /// A codec of that name or id is there already.
    #[error("a codec with this {what} is registered already; choose another")]
    Taken {
        /// `name` or `GGUF type id`.
        what: &'static str,
    },
    /// The geometry cannot be used.
    #[error("its block of {block_len} numbers in {block_bytes} bytes cannot be used: {why}")]
    Geometry {
        /// Numbers in a block.
        block_len: usize,
        /// Bytes in a block.
        block_bytes: usize,
        /// Why not.
        why: &'static str,
    },
    /// The codec only decodes.
    #[error("{0} cannot be written, only read")]
    NoEncoder(&'static str),
}

impl Problem {
    /// Adds the place.
    pub fn at(self, place: impl Into<String>) -> Error {
        Error { place: place.into(), problem: self }
    }
}
