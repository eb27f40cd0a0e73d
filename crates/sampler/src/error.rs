//! What can go wrong when a sampler is made or used.

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no sampler or no token.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// A parameter lies outside its range.
    #[error("sampling parameter `{name}`: expected {expected}, found {found}")]
    Parameter {
        /// Its name in [`crate::SamplerParams`].
        name: &'static str,
        /// The values that it may have.
        expected: &'static str,
        /// The value that it had.
        found: String,
    },
    /// The logits are not of the vocabulary that the sampler was made for.
    #[error("logits: expected {expected}, one for each token of the vocabulary, found {found}")]
    Length {
        /// The vocabulary's size.
        expected: usize,
        /// The number of logits.
        found: usize,
    },
    /// A logit is not a number.
    #[error(
        "logits: expected numbers, found NaN for token {token}; the model's weights or activations are damaged"
    )]
    NotANumber {
        /// The first token whose logit is NaN.
        token: u32,
    },
    /// A logit is plus infinity, which leaves nothing to compare.
    #[error("logits: expected finite numbers or -inf, found +inf for token {token}")]
    Infinite {
        /// The first token whose logit is plus infinity.
        token: u32,
    },
    /// All logits are minus infinity.
    #[error("logits: expected at least one token that may follow, found -inf for all {tokens}")]
    NothingAllowed {
        /// The vocabulary's size.
        tokens: usize,
    },
}
