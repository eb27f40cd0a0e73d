//! A graph that cannot be: which node, and why.

use thiserror::Error;

/// An op that does not fit its inputs or weights.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("{op} in {place}: expected {expected}, found {found}")]
pub struct Error {
    /// `layer 3`, or `graph`.
    pub place: String,
    /// The op's name.
    pub op: &'static str,
    /// What the op needs.
    pub expected: String,
    /// What it was given.
    pub found: String,
}
