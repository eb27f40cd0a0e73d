//! What can be wrong with a model on disk.

use std::{io, path::Path};
use thiserror::Error;

/// A problem and the place where it is: a file, then perhaps a key or a tensor in it.
#[derive(Debug, Error)]
#[error("{place}: {problem}")]
pub struct Error {
    /// `qwen3.gguf: tensor `blk.3.attn_q.weight``
    pub place: String,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Error)]
pub enum Problem {
    /// The operating system refused.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The file ends too early.
    #[error(
        "expected {what} of {needed} bytes, found only {left} left in the file; it is truncated or corrupt"
    )]
    Truncated {
        /// What was being read.
        what: &'static str,
        /// Bytes it claims.
        needed: u64,
        /// Bytes there are.
        left: u64,
    },
    /// Something else than what must be there.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What must be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// It is not there.
    #[error("expected {0}, found nothing")]
    Missing(String),
    /// The same name twice.
    #[error("expected a unique name, found it twice")]
    Duplicate,
    /// A number past what can be counted or addressed.
    #[error("its size overflows; the file is corrupt")]
    Overflow,
    /// A kind of file, encoding or setting that is known, or not, but cannot be read.
    #[error("{0}")]
    Unsupported(String),
    /// It does not fit the memory.
    #[error("{0}")]
    TooLarge(String),
    /// Text that is not JSON, or JSON of another shape.
    #[error("not the JSON that was expected: {0}")]
    Json(#[from] serde_json::Error),
    /// The numbers of a tensor do not fit its encoding.
    #[error("{0}")]
    Encoding(nibble_quant::Problem),
}

impl Problem {
    /// Adds the place.
    pub fn at(self, place: impl Into<String>) -> Error {
        Error { place: place.into(), problem: self }
    }

    /// Adds a file as the place.
    pub fn at_path(self, path: &Path) -> Error {
        self.at(path.display().to_string())
    }

    pub(crate) fn expected(expected: impl Into<String>, found: impl ToString) -> Self {
        Self::Expected { expected: expected.into(), found: found.to_string() }
    }
}

impl Error {
    /// Puts an outer place (a file) in front of the place.
    pub(crate) fn within(self, outer: impl AsRef<str>) -> Self {
        Self { place: format!("{}: {}", outer.as_ref(), self.place), problem: self.problem }
    }
}

impl From<nibble_quant::Error> for Error {
    fn from(error: nibble_quant::Error) -> Self {
        Problem::Encoding(error.problem).at(error.place)
    }
}
