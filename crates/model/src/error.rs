//! Why a checkpoint is no model that can run.

use std::path::{Path, PathBuf};
use thiserror::Error;

/// A problem and the file that has it.
#[derive(Debug, Error)]
#[error("{}: {problem}", path.display())]
pub struct Error {
    /// The model's file or folder.
    pub path: PathBuf,
    /// What is wrong.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, Error)]
pub enum Problem {
    /// An architecture that nobody wrote down here.
    #[error("architecture `{found}` is not known; known are {}", known.join(", "))]
    Architecture {
        /// What the file says.
        found: String,
        /// What could be run, sorted.
        known: Vec<&'static str>,
    },
    /// A hyperparameter that is not there.
    #[error("metadata `{key}` is missing and has no default")]
    MissingKey {
        /// The canonical key.
        key: &'static str,
    },
    /// A hyperparameter that cannot be.
    #[error("metadata `{key}`: expected {expected}, found {found}")]
    Key {
        /// The canonical key.
        key: &'static str,
        /// What it must be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// A tensor that is not there.
    #[error("tensor `{name}` of shape {expected} is missing")]
    MissingTensor {
        /// The canonical name.
        name: String,
        /// The shape it should have.
        expected: String,
    },
    /// A tensor of another shape.
    #[error("tensor `{name}`: expected shape {expected}, found {found}")]
    Shape {
        /// The canonical name.
        name: String,
        /// The shape that the hyperparameters ask for.
        expected: String,
        /// The shape it has.
        found: String,
    },
    /// A tensor that the architecture has no place for.
    #[error(
        "tensor `{name}` has no place in this architecture; the model would not compute what it was trained for"
    )]
    Unused {
        /// The canonical name.
        name: String,
    },
    /// Ops that do not fit together.
    #[error(transparent)]
    Graph(#[from] nibble_graph::Error),
}

impl Problem {
    /// Adds the place.
    pub(crate) fn at(self, path: &Path) -> Error {
        Error { path: path.into(), problem: self }
    }
}
