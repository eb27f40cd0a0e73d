//! What can be wrong with a vocabulary.

/// Shorthand for results of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A vocabulary or `tokenizer.json` that cannot be used: where, and what is wrong there.
#[derive(Debug, thiserror::Error)]
#[error("tokenizer: {place}: {problem}")]
pub struct Error {
    /// The key, array or JSON path concerned.
    pub place: String,
    /// What is wrong there.
    pub problem: Problem,
}

/// What is wrong.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// An array that runs beside the token array has another length.
    #[error("holds {found} entries, but the vocabulary has {expected} tokens")]
    Length {
        /// The number of tokens.
        expected: usize,
        /// The number of entries found.
        found: usize,
    },
    /// An id that names no token.
    #[error("is {id}, but the vocabulary has {vocab} tokens; the id must be below that")]
    PastVocabulary {
        /// The id found.
        id: u64,
        /// The number of tokens.
        vocab: usize,
    },
    /// A name that this version does not know.
    #[error("`{found}` is not supported; supported are: {known}")]
    Unknown {
        /// The name found.
        found: String,
        /// The names known, separated by commas.
        known: String,
    },
    /// Something needed is absent.
    #[error("is missing; {0}")]
    Missing(&'static str),
    /// A merge that is not two tokens which together are a third.
    #[error("merge {index} `{text}` is not two tokens of the vocabulary that join to a third")]
    Merge {
        /// The place of the merge in the list.
        index: usize,
        /// The merge as the file has it.
        text: String,
    },
    /// A pattern outside what runs in linear time.
    #[error("pattern `{pattern}` cannot be used: {reason}")]
    Pattern {
        /// The pattern as the file has it.
        pattern: String,
        /// Why it was refused.
        reason: String,
    },
    /// Two tokens under one id, or one token under two.
    #[error("token `{0}` contradicts an earlier one with the same text or id")]
    Duplicate(String),
    /// Not the JSON that was expected.
    #[error("is not the expected JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl Problem {
    /// Adds the place where the problem is.
    pub(crate) fn at(self, place: impl Into<String>) -> Error {
        Error { place: place.into(), problem: self }
    }
}
