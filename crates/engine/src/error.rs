//! Why a request is refused or a step fails.

use thiserror::Error;

/// What can go wrong, in one sentence each.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Error {
    /// The prompt has no tokens.
    #[error("the prompt is empty: at least one token is needed")]
    EmptyPrompt,
    /// The prompt does not fit the context.
    #[error("the prompt has {needed} tokens, but the context holds {available}")]
    Context {
        /// Tokens in the prompt.
        needed: usize,
        /// The context's length.
        available: usize,
    },
    /// A token id outside the vocabulary.
    #[error("token id {token} is outside the vocabulary of {vocab}")]
    Token {
        /// The id.
        token: u32,
        /// Tokens in the vocabulary.
        vocab: usize,
    },
    /// A logit is not finite, so that there is nothing to compare with.
    #[error("logits of position {position}: expected finite numbers, found {found} for token {token}")]
    NotFinite {
        /// The position in the text.
        position: usize,
        /// The first token whose logit is not finite.
        token: usize,
        /// NaN, or an infinity.
        found: f32,
    },
    /// The request could never run with the memory reserved.
    #[error(
        "the request needs {needed} pages of keys and values, but the bank has {available}; \
             ask for fewer tokens or raise the memory budget"
    )]
    Pages {
        /// Pages for prompt and answer.
        needed: usize,
        /// Pages in the bank.
        available: usize,
    },
    /// A sampling parameter is wrong.
    #[error(transparent)]
    Sampler(#[from] nibble_sampler::Error),
    /// No token can be chosen from logits.
    #[error("position {position}: {error}")]
    Logits {
        /// The position of the token that they follow.
        position: usize,
        /// Why.
        error: nibble_sampler::Error,
    },
    /// The device refused or failed.
    #[error(transparent)]
    Backend(#[from] nibble_backend::Error),
}
