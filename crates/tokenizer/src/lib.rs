//! Text to token ids and back.
//!
//! A [`Tokenizer`] is made from a [`Vocab`] (what a GGUF file holds under `tokenizer.ggml.*`) or from the bytes of a
//! `tokenizer.json`. It encodes in `O(n log n)` without recursion, and decodes byte for byte, all at once or token by
//! token through a [`StreamDecoder`].
//!
//! The way of a text: added tokens are cut out (`added`), the rest is normalized (`normalize`), split into words
//! (`split`), and each word becomes ids by one of four models (`bpe`, `sentencepiece`, `wordpiece`, `unigram`).
#![forbid(unsafe_code)]

mod added;
mod bpe;
mod byte_level;
mod end;
mod error;
mod from_vocab;
mod json;
mod lookup;
mod merge;
mod normalize;
mod pieces;
mod pretokenizers;
mod sentencepiece;
mod split;
mod stream;
mod tokenizer;
mod unigram;
mod vocab;
mod wordpiece;

pub use error::{Error, Problem, Result};
pub use pretokenizers::{PRETOKENIZERS, Pretokenizer};
pub use split::Rule;
pub use stream::StreamDecoder;
pub use tokenizer::{EncodeOptions, Tokenizer};
pub use vocab::{ModelKind, TokenType, Vocab};
