//! Byte pair encoding, over bytes (GPT-2 and its many children) or over characters (Gemma, Llama as `tokenizer.json`).

use crate::byte_level;
use crate::error::{Problem, Result};
use crate::lookup::{Lookup, Table, byte_tokens};
use crate::merge::{Joined, Merger};
use crate::vocab::TokenType;

/// What a word's first symbols are.
#[derive(Debug)]
enum Alphabet {
    /// One per byte; bytes without a token are `None`.
    Bytes(Box<[Option<u32>; 256]>),
    /// One per character; a character without a token becomes its bytes, if those have tokens.
    Chars { tokens: Lookup, bytes: Option<Box<[u32; 256]>> },
}

/// A merge: its place in the list (lower is earlier) and the token it makes.
#[derive(Clone, Copy, Debug)]
struct Merge {
    rank: u32,
    id: u32,
}

/// A byte pair encoder.
#[derive(Debug)]
pub(crate) struct Bpe {
    alphabet: Alphabet,
    merges: Table<(u32, u32), Merge>,
    /// The bytes of words that are tokens as they are, where the vocabulary says that merges do not matter then.
    whole: Option<Table<Box<[u8]>, u32>>,
    unk: Option<u32>,
    fuse_unk: bool,
}

/// What shapes a [`Bpe`], beside its tokens and merges.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BpeOptions {
    /// Symbols are bytes in the printable alphabet, not characters.
    pub byte_level: bool,
    /// A character without a token becomes its bytes (never with `byte_level`).
    pub byte_fallback: bool,
    /// A word that is a token becomes that token, whatever the merges say.
    pub ignore_merges: bool,
    /// The token for what has none; without it such symbols are dropped.
    pub unk: Option<u32>,
    /// Neighbouring unknown symbols become one token.
    pub fuse_unk: bool,
}

impl Bpe {
    /// Builds the tables; `all` is the look-up of all `tokens`. `merges` are `(left, right)`, the most important first.
    ///
    /// # Errors
    /// [`Problem::Merge`] if a side, or both joined, is no token.
    pub fn new<'m>(
        tokens: &[String],
        all: &Lookup,
        kind: impl Fn(usize) -> TokenType,
        merges: impl Iterator<Item = Option<(&'m str, &'m str)>>,
        options: BpeOptions,
    ) -> Result<Self, Problem> {
        let merges = merge_table(all, merges)?;
        let whole = options.ignore_merges.then(|| whole_words(tokens, &kind, options.byte_level));
        let alphabet = if options.byte_level {
            Alphabet::Bytes(Box::new(std::array::from_fn(|byte| {
                all.get(byte_level::char_of(byte as u8).encode_utf8(&mut [0; 4]))
            })))
        } else {
            let bytes = if options.byte_fallback { byte_tokens(all) } else { None };
            Alphabet::Chars { tokens: Lookup::of_text(tokens, kind), bytes }
        };
        Ok(Self { alphabet, merges, whole, unk: options.unk, fuse_unk: options.fuse_unk })
    }

    /// Appends the ids of one word.
    pub fn encode(&self, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        if let Some(&id) = self.whole.as_ref().and_then(|whole| whole.get(word.as_bytes())) {
            return out.push(id);
        }
        merger.clear();
        self.push_symbols(word, merger);
        let mut after_unk = false;
        for symbol in merger.merge(|a, b| self.join(a.id?, b.id?)) {
            let id = symbol.id.or(if after_unk && self.fuse_unk { None } else { self.unk });
            after_unk = symbol.id.is_none();
            out.extend(id);
        }
    }

    fn push_symbols(&self, word: &str, merger: &mut Merger) {
        match &self.alphabet {
            Alphabet::Bytes(ids) => word.bytes().for_each(|byte| merger.push(1, ids[byte as usize])),
            Alphabet::Chars { tokens, bytes } => {
                for c in word.chars() {
                    let mut buffer = [0; 4];
                    let text = &*c.encode_utf8(&mut buffer);
                    match (tokens.get(text), bytes) {
                        (None, Some(ids)) => {
                            text.bytes().for_each(|byte| merger.push(1, Some(ids[byte as usize])));
                        }
                        (id, _) => merger.push(text.len(), id),
                    }
                }
            }
        }
    }

    fn join(&self, left: u32, right: u32) -> Option<Joined> {
        self.merges.get(&(left, right)).map(|&Merge { rank, id }| Joined { order: rank, id })
    }
}

fn merge_table<'m>(
    all: &Lookup,
    merges: impl Iterator<Item = Option<(&'m str, &'m str)>>,
) -> Result<Table<(u32, u32), Merge>, Problem> {
    let mut table = Table::with_capacity_and_hasher(merges.size_hint().0, Default::default());
    let mut joined = String::new();
    for (index, merge) in merges.enumerate() {
        let (left, right) =
            merge.ok_or_else(|| Problem::Merge { index, text: "(without a space)".into() })?;
        joined.clear();
        joined.push_str(left);
        joined.push_str(right);
        let (Some(a), Some(b), Some(id)) = (all.get(left), all.get(right), all.get(&joined)) else {
            return Err(Problem::Merge { index, text: format!("{left} {right}") });
        };
        table.entry((a, b)).or_insert(Merge { rank: index as u32, id });
    }
    Ok(table)
}

fn whole_words(
    tokens: &[String],
    kind: &impl Fn(usize) -> TokenType,
    byte_level: bool,
) -> Table<Box<[u8]>, u32> {
    let mut words = Table::with_capacity_and_hasher(tokens.len(), Default::default());
    for (id, token) in tokens.iter().enumerate().filter(|(id, _)| kind(*id) == TokenType::Normal) {
        let bytes = if byte_level { byte_level::decode(token) } else { token.as_bytes().to_vec() };
        words.entry(bytes.into()).or_insert(id as u32);
    }
    words
}

/// The two sides of a merge written `left right`; a side may itself be a space.
pub(crate) fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let first = merge.chars().next()?.len_utf8();
    let space = first + merge[first..].find(' ')?;
    Some((&merge[..space], &merge[space + 1..]))
}
