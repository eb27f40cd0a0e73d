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

/// What the caller can do about a failure. Programs say it in their own terms, such as the flag to give.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Fewer tokens, or a larger [`crate::Options::context`].
    Context,
    /// A smaller [`crate::Options::context`], a smaller [`crate::Options::kv`], a larger
    /// [`crate::Options::memory_budget`].
    Memory,
    /// [`crate::Options::check_finite`], which names the op.
    CheckFinite,
    /// A prompt as token ids.
    Ids,
    /// A prompt without the chat template: [`crate::Model::encode`].
    PlainText,
    /// Another name, or [`crate::QuantizeOptions::force`].
    Replace,
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Context => "ask for fewer tokens or a larger `context`",
            Self::Memory => "lower `context`, choose a smaller `kv`, or raise `memory_budget`",
            Self::CheckFinite => "run it with `check_finite` to learn which op it comes from",
            Self::Ids => "give the prompt as token ids",
            Self::PlainText => "give plain text to `encode`",
            Self::Replace => "choose another name, or set `force` to replace it",
        })
    }
}

/// A failure: its kind and one sentence that says where, what was expected, what was found and what to do.
#[derive(Debug)]
pub struct Error {
    /// What kind of failure it is.
    pub kind: Kind,
    /// What can be done about it, where that is more than the sentence says already.
    pub remedy: Option<Remedy>,
    message: String,
    source: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl Error {
    /// A failure in words.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, remedy: None, message: message.into(), source: None }
    }

    /// A failure in words, and the error behind it.
    pub fn caused(
        kind: Kind,
        message: impl Into<String>,
        source: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self { source: Some(Box::new(source)), ..Self::new(kind, message) }
    }

    /// The failure with what can be done about it.
    pub fn with(self, remedy: Remedy) -> Self {
        Self { remedy: Some(remedy), ..self }
    }

    /// The sentence without the remedy.
    pub fn message(&self) -> &str {
        &self.message
    }

    fn of(kind: Kind, source: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::caused(kind, source.to_string(), source)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.remedy.map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|e| e.as_ref() as _)
    }
}

impl From<nibble_format::Error> for Error {
    fn from(e: nibble_format::Error) -> Self {
        let kind = match e.problem {
            nibble_format::Problem::TooLarge(_) => Kind::Fit,
            _ => Kind::Load,
        };
        Self::of(kind, e)
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
            E::EmptyPrompt | E::Token { .. } | E::Sampler(_) => Self::of(Kind::Usage, e),
            E::Context { .. } => Self::of(Kind::Fit, e).with(Remedy::Context),
            E::Pages { .. } => Self::of(Kind::Fit, e),
            E::NotFinite { .. } | E::Logits { .. } => Self::of(Kind::Run, e).with(Remedy::CheckFinite),
            E::Backend(e) => e.into(),
        }
    }
}
