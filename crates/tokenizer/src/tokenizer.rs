//! The tokenizer: text to ids and back.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::added::{Added, Part};
use crate::bpe::Bpe;
use crate::error::{Problem, Result};
use crate::lookup::Lookup;
use crate::merge::Merger;
use crate::normalize::{Normalize, normalize};
use crate::pieces::Pieces;
use crate::sentencepiece::SentencePiece;
use crate::split::{Step, split};
use crate::stream::StreamDecoder;
use crate::unigram::Unigram;
use crate::wordpiece::WordPiece;

/// What [`Tokenizer::encode`] does beside encoding plain text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EncodeOptions {
    /// Adds what the vocabulary puts around a text (BOS, EOS, CLS, SEP). A BOS that is already there is not doubled.
    pub add_special: bool,
    /// Texts of special tokens become these tokens; otherwise they are plain text.
    pub parse_special: bool,
}

impl EncodeOptions {
    /// Plain text, nothing added: what a user wrote can steer nothing.
    pub const TEXT: Self = Self { add_special: false, parse_special: false };
    /// A whole prompt: special tokens are read and added.
    pub const PROMPT: Self = Self { add_special: true, parse_special: true };
}

/// How words become ids.
#[derive(Debug)]
pub(crate) enum Model {
    Bpe(Bpe),
    SentencePiece(SentencePiece),
    WordPiece(WordPiece),
    Unigram(Unigram),
}

impl Model {
    fn encode(&self, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        match self {
            Self::Bpe(model) => model.encode(word, merger, out),
            Self::SentencePiece(model) => model.encode(word, merger, out),
            Self::WordPiece(model) => model.encode(word, out),
            Self::Unigram(model) => model.encode(word, out),
        }
    }
}

/// Where a space is put before the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Prefix {
    #[default]
    Never,
    /// At the start of the whole text, unless one is there.
    First,
    /// Before each stretch of text between added tokens, unless one is there.
    Each,
    /// As `Each`, also where one is there.
    Always,
}

/// How spaces are written.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spaces {
    pub prefix: Prefix,
    /// As `▁`.
    pub marked: bool,
}

impl Spaces {
    fn apply(self, text: &str, at_start: bool) -> String {
        let has_one = text.starts_with(' ') || (self.marked && text.starts_with('▁'));
        let prefix = match self.prefix {
            Prefix::Never => false,
            Prefix::First => at_start && !has_one,
            Prefix::Each => !has_one,
            Prefix::Always => true,
        };
        let text = if prefix { format!(" {text}") } else { text.to_owned() };
        if self.marked { text.replace(' ', "▁") } else { text }
    }
}

/// Ids with a meaning of their own.
#[derive(Clone, Debug, Default)]
pub(crate) struct Named {
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unk: Option<u32>,
    pub pad: Option<u32>,
    /// Ids that end generation, in rising order.
    pub end: Vec<u32>,
}

/// Turns text into token ids and back.
///
/// Encoding never fails: what the vocabulary cannot write becomes its unknown token, or is left out if it has none.
/// Decoding takes any id; ids past the vocabulary stand for nothing.
#[derive(Debug)]
pub struct Tokenizer {
    pub(crate) all: Lookup,
    pub(crate) pieces: Arc<Pieces>,
    /// Tokens found in the text as it is.
    pub(crate) added: Added,
    pub(crate) normalizers: Vec<Normalize>,
    /// Tokens found in the normalized text.
    pub(crate) added_after: Added,
    pub(crate) spaces: Spaces,
    pub(crate) steps: Vec<Step>,
    pub(crate) model: Model,
    /// Ids before and after a text with `add_special`.
    pub(crate) around: (Vec<u32>, Vec<u32>),
    pub(crate) named: Named,
}

impl Tokenizer {
    /// The ids of `text`, in `O(n log n)` time.
    pub fn encode(&self, text: &str, options: EncodeOptions) -> Vec<u32> {
        let mut out = Vec::with_capacity(text.len() / 3 + 2);
        if options.add_special {
            out.extend_from_slice(&self.around.0);
        }
        let before = out.len();
        let mut merger = Merger::default();
        let mut at_start = true;
        for part in self.added.split(text, options.parse_special) {
            match part {
                Part::Token(id) => out.push(id),
                Part::Text(text) => {
                    self.encode_part(text, at_start, options.parse_special, &mut merger, &mut out);
                }
            }
            at_start = false;
        }
        if options.add_special {
            if before > 0
                && out.get(before) == out.get(before - 1)
                && out.get(before) == self.named.bos.as_ref()
            {
                out.remove(before);
            }
            out.extend_from_slice(&self.around.1);
        }
        out
    }

    fn encode_part(
        &self,
        text: &str,
        mut at_start: bool,
        parse_special: bool,
        merger: &mut Merger,
        out: &mut Vec<u32>,
    ) {
        let text = normalize(&self.normalizers, text);
        for part in self.added_after.split(&text, parse_special) {
            match part {
                Part::Token(id) => out.push(id),
                Part::Text(text) => self.encode_text(&self.spaces.apply(text, at_start), merger, out),
            }
            at_start = false;
        }
    }

    /// Encodes normalized text without added tokens, each distinct word once.
    fn encode_text(&self, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        let mut known: HashMap<&str, Range<usize>> = HashMap::new();
        for word in split(&self.steps, text) {
            let word = &text[word];
            if let Some(ids) = known.get(word) {
                out.extend_from_within(ids.clone());
                continue;
            }
            let from = out.len();
            self.model.encode(word, merger, out);
            known.insert(word, from..out.len());
        }
    }

    /// The text of `ids`; U+FFFD stands for bytes that are no text. Special tokens are left out or written.
    pub fn decode(&self, ids: &[u32], skip_special: bool) -> String {
        let mut stream = self.stream(skip_special);
        let mut text = String::new();
        for &id in ids {
            stream.push_into(id, &mut text);
        }
        text + &stream.finish()
    }

    /// The bytes of `ids`, whether they are text or not.
    pub fn decode_bytes(&self, ids: &[u32], skip_special: bool) -> Vec<u8> {
        let mut stream = self.stream(skip_special);
        let mut bytes = Vec::new();
        for &id in ids {
            bytes.extend_from_slice(stream.push_bytes(id));
        }
        bytes
    }

    /// A decoder of a text from its start, where a vocabulary's own leading space is no text.
    pub fn stream(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.pieces), skip_special, true)
    }

    /// A decoder of what continues a text, where a leading space is text.
    pub fn stream_continuing(&self, skip_special: bool) -> StreamDecoder {
        StreamDecoder::new(Arc::clone(&self.pieces), skip_special, false)
    }

    /// The number of ids.
    pub fn vocab_size(&self) -> usize {
        self.pieces.len()
    }

    /// The bytes that `id` stands for; none past the vocabulary.
    pub fn piece(&self, id: u32) -> &[u8] {
        self.pieces.get(id)
    }

    /// The id whose token is written `token` in the vocabulary; of several the lowest.
    pub fn token_to_id(&self, token: &str) -> Option<u32> {
        self.all.get(token)
    }

    /// Whether `id` steers the model and is no text.
    pub fn is_special(&self, id: u32) -> bool {
        self.pieces.is_special(id)
    }

    /// The token that begins a text.
    pub fn bos(&self) -> Option<u32> {
        self.named.bos
    }

    /// The token that ends a text.
    pub fn eos(&self) -> Option<u32> {
        self.named.eos
    }

    /// The token for what cannot be written.
    pub fn unk(&self) -> Option<u32> {
        self.named.unk
    }

    /// The token that fills up a batch.
    pub fn pad(&self) -> Option<u32> {
        self.named.pad
    }

    /// Whether [`EncodeOptions::add_special`] puts [`bos`](Self::bos) first.
    pub fn adds_bos(&self) -> bool {
        self.named.bos.is_some() && self.around.0.first() == self.named.bos.as_ref()
    }

    /// The ids that end generation, in rising order.
    pub fn end_tokens(&self) -> &[u32] {
        &self.named.end
    }

    /// Whether `id` ends generation.
    pub fn is_end(&self, id: u32) -> bool {
        self.named.end.binary_search(&id).is_ok()
    }

    /// Adds ids that end generation, such as those of `generation_config.json`.
    ///
    /// # Errors
    /// [`Problem::PastVocabulary`] for an id that names no token; then none is added.
    pub fn add_end_tokens(&mut self, ids: &[u32]) -> Result<()> {
        let vocab = self.vocab_size();
        if let Some(&id) = ids.iter().find(|&&id| id as usize >= vocab) {
            return Err(Problem::PastVocabulary { id: id.into(), vocab }.at("end tokens"));
        }
        self.named.end.extend_from_slice(ids);
        self.named.end.sort_unstable();
        self.named.end.dedup();
        Ok(())
    }
}
