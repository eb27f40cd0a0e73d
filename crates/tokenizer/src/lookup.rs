//! From a token's text to its id.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::vocab::TokenType;

/// A map for the tables of a vocabulary, which are large and read often.
pub(crate) type Table<K, V> = HashMap<K, V, RandomState>;

/// The tokens that plain text may become, by their text.
///
/// Control, unknown and byte tokens are left out: a text that happens to spell one must not turn into it.
#[derive(Debug, Default)]
pub(crate) struct Lookup {
    ids: Table<Box<str>, u32>,
    longest: usize,
    end: usize,
}

impl Lookup {
    /// Looks through `tokens`; of two with one text the lower id wins.
    pub fn of_text(tokens: &[String], kind: impl Fn(usize) -> TokenType) -> Self {
        let is_text = |id| !matches!(kind(id), TokenType::Control | TokenType::Unknown | TokenType::Byte);
        Self::filtered(tokens, is_text)
    }

    /// All tokens, whatever they are for.
    pub fn of_all(tokens: &[String]) -> Self {
        Self::filtered(tokens, |_| true)
    }

    fn filtered(tokens: &[String], keep: impl Fn(usize) -> bool) -> Self {
        let mut lookup = Self {
            ids: Table::with_capacity_and_hasher(tokens.len(), RandomState::default()),
            longest: 0,
            end: tokens.len(),
        };
        for (id, token) in tokens.iter().enumerate().filter(|(id, token)| keep(*id) && !token.is_empty()) {
            lookup.ids.entry(token.as_str().into()).or_insert(id as u32);
            lookup.longest = lookup.longest.max(token.len());
        }
        lookup
    }

    /// The id of `text`.
    pub fn get(&self, text: &str) -> Option<u32> {
        if text.len() > self.longest { None } else { self.ids.get(text).copied() }
    }

    /// One past the highest id.
    pub fn len(&self) -> usize {
        self.end
    }

    /// The length of the longest token in bytes.
    pub fn longest(&self) -> usize {
        self.longest
    }
}

/// The token of each byte, `<0xXX>`, if the vocabulary has all of them.
pub(crate) fn byte_tokens(all: &Lookup) -> Option<Box<[u32; 256]>> {
    let mut ids = Box::new([0; 256]);
    for byte in 0..=255u8 {
        ids[byte as usize] = all.get(&byte_token(byte))?;
    }
    Some(ids)
}

/// How a byte token is written.
fn byte_token(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

/// The byte that a token written `<0xXX>` stands for.
pub(crate) fn byte_of_token(token: &str) -> Option<u8> {
    let byte = u8::from_str_radix(token.strip_prefix("<0x")?.strip_suffix('>')?, 16).ok()?;
    (token.len() == 6).then_some(byte)
}

/// The characters that stand before a `▁` inside some token. Everywhere else a `▁` after another character starts a
/// word that can be encoded by itself, as no token reaches across. `None` if `▁` is no token.
pub(crate) fn glue(tokens: &[String]) -> Option<Vec<char>> {
    if !tokens.iter().any(|token| token == "▁") {
        return None;
    }
    let mut glue = vec!['▁'];
    for token in tokens {
        for (at, _) in token.match_indices('▁') {
            glue.extend(token[..at].chars().next_back());
        }
    }
    glue.sort_unstable();
    glue.dedup();
    Some(glue)
}
