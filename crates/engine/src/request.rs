//! What is asked for, and what comes back.

use crate::Error;
use nibble_sampler::SamplerParams;

/// A request's number, unique in its engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// A prompt and how to go on from it.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The prompt's tokens.
    pub prompt: Vec<u32>,
    /// The most tokens to generate; as many as the context holds if `None`.
    pub max_tokens: Option<usize>,
    /// How tokens are chosen.
    pub sampling: SamplerParams,
    /// Text that ends the answer and is not part of it.
    pub stop: Vec<String>,
    /// Tokens that end the answer and are not part of it: the ends of turn of the file.
    pub stop_tokens: Vec<u32>,
}

/// Why an answer ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FinishReason {
    /// An end-of-turn token or a stop string.
    Stop,
    /// As many tokens as were asked for, or as the context holds.
    Length,
    /// The caller gave up.
    Cancelled,
}

impl FinishReason {
    /// The word that other programs know it by.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// Tokens counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens in the prompt.
    pub prompt: usize,
    /// Of these, tokens whose keys and values were there already.
    pub cached: usize,
    /// Tokens generated, an end-of-turn token included.
    pub generated: usize,
}

/// What a step brought.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Part of a prompt has run.
    Prefill {
        /// Whose.
        request: RequestId,
        /// Tokens of the prompt that are done.
        done: usize,
        /// Tokens in the prompt.
        total: usize,
        /// Of the done ones, tokens that were there already.
        cached: usize,
    },
    /// A token was chosen.
    Token {
        /// Whose.
        request: RequestId,
        /// Its id.
        token: u32,
        /// Text that is certain now; empty while a character or a stop string may go on.
        text: String,
    },
    /// An answer has ended.
    Finished {
        /// Whose.
        request: RequestId,
        /// Text that was held back.
        text: String,
        /// Why.
        reason: FinishReason,
        /// Tokens counted.
        usage: Usage,
    },
    /// An answer has broken off. Other requests go on.
    Failed {
        /// Whose.
        request: RequestId,
        /// Why: logits that no token can be chosen from.
        error: Error,
        /// Tokens counted.
        usage: Usage,
    },
}
