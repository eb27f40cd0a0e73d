//! One error for callers: what failed, in one sentence, and what kind of failure it is.

use std::fmt;

/// What kind of failure an error is: the exit code of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for makes no sense.
    Usage = 2,
    /// The model cannot be loaded.
    Load = 3,
    /// It does not fit the memory or the context.
    Fit = 4,
    /// It failed while running.
    Run = 5,
}

/// A failure: its kind and one sentence that says where, what was expected, what was found and what to do.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure it is.
    pub kind: Kind,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A failure in words.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), source: None }
    }

    fn of(kind: Kind, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self { kind, message: source.to_string(), source: Some(Box::new(source)) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e.as_ref() as _)
    }
}

impl From<nibble_format::Error> for Error {
    fn from(e: nibble_format::Error) -> Self {
        Self::of(Kind::Load, e)
    }
}

impl From<nibble_model::Error> for Error {
    fn from(e: nibble_model::Error) -> Self {
        Self::of(Kind::Load, e)
    }
}

impl From<nibble_tokenizer::Error> for Error {
    fn from(e: nibble_tokenizer::Error) -> Self {
        Self::of(Kind::Load, e)
    }
}

impl From<nibble_chat::Error> for Error {
    fn from(e: nibble_chat::Error) -> Self {
        use nibble_chat::Error as E;
        let kind = match e {
            E::Raised(_) => Kind::Usage,
            E::Syntax { .. } | E::Unknown { .. } => Kind::Load,
            E::TooLarge { .. } => Kind::Fit,
            E::Failed { .. } | E::Endless { .. } => Kind::Run,
        };
        Self::of(kind, e)
    }
}

impl From<nibble_backend::Error> for Error {
    fn from(e: nibble_backend::Error) -> Self {
        let kind = match e {
            nibble_backend::Error::Unsupported { .. } => Kind::Load,
            nibble_backend::Error::Memory { .. } => Kind::Fit,
            _ => Kind::Run,
        };
        Self::of(kind, e)
    }
}

impl From<nibble_engine::Error> for Error {
    fn from(e: nibble_engine::Error) -> Self {
        use nibble_engine::Error as E;
        match e {
            E::EmptyPrompt | E::Token { .. } | E::Sampler(nibble_sampler::Error::Parameter { .. }) => {
                Self::of(Kind::Usage, e)
            }
            E::Context { .. } | E::Pages { .. } => Self::of(Kind::Fit, e),
            E::NotFinite { .. } | E::Sampler(_) => Self::of(Kind::Run, e),
            E::Backend(e) => e.into(),
        }
    }
}
