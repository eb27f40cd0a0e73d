//! What can go wrong with a chat template, and whose fault it is.

use minijinja::ErrorKind;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a chat template gave no prompt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The template refused the messages through `raise_exception`; this is its own message, unchanged.
    #[error("{0}")]
    Raised(String),
    /// The template is not valid Jinja.
    #[error("chat template, line {line}: expected valid Jinja, found {problem}")]
    Syntax {
        /// Line of the template, from 1; 0 where it is not known.
        line: usize,
        /// What the parser met.
        problem: String,
    },
    /// The template uses a function, filter, test or method that does not exist.
    #[error("chat template, line {line}: {problem}; use a template that needs only what transformers offers")]
    Unknown {
        /// Line of the template, from 1; 0 where it is not known.
        line: usize,
        /// What is unknown, by name.
        problem: String,
    },
    /// The template failed on these messages, say by adding a number to a string.
    #[error("chat template, line {line}: {problem}")]
    Failed {
        /// Line of the template, from 1; 0 where it is not known.
        line: usize,
        /// What failed.
        problem: String,
    },
    /// The template took more work or memory than its budget.
    #[error(
        "chat template, line {line}: expected at most {budget} steps (64 bytes count as one), found no end"
    )]
    Endless {
        /// Line of the template, from 1; 0 where it is not known.
        line: usize,
        /// The budget of this rendering.
        budget: u64,
    },
    /// The template or the values given to it are larger or deeper than is taken.
    #[error("chat template: expected {what} of at most {limit}, found {found}")]
    TooLarge {
        /// What was measured, with its unit.
        what: &'static str,
        /// The most that is taken.
        limit: usize,
        /// What was found.
        found: usize,
    },
}

/// Carries the message of `raise_exception` through the engine's own error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Raised(pub String);

impl Error {
    pub(crate) fn from_engine(error: &minijinja::Error, budget: u64) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(inner) = cause {
            if let Some(Raised(message)) = inner.downcast_ref() {
                return Self::Raised(message.clone());
            }
            cause = inner.source();
        }
        let line = error.line().unwrap_or(0);
        let problem = match error.detail() {
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        match error.kind() {
            ErrorKind::SyntaxError | ErrorKind::BadEscape => Self::Syntax { line, problem },
            ErrorKind::OutOfFuel => Self::Endless { line, budget },
            ErrorKind::UnknownFilter
            | ErrorKind::UnknownFunction
            | ErrorKind::UnknownTest
            | ErrorKind::UnknownMethod => Self::Unknown { line, problem },
            _ => Self::Failed { line, problem },
        }
    }
}
