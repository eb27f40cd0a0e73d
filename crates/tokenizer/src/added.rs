//! Tokens that are found in the text before anything else.

use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};

use crate::error::{Problem, Result};

/// A token that is cut out of the text.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddedToken {
    pub id: u32,
    pub text: String,
    /// Found only where special tokens are wanted.
    pub special: bool,
    /// Not found inside a word.
    pub single_word: bool,
    /// Swallows white space on its left.
    pub lstrip: bool,
    /// Swallows white space on its right.
    pub rstrip: bool,
}

/// A stretch of the text: of bytes that are not yet tokens, or one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'t> {
    Text(&'t str),
    Token(u32),
}

/// Finds added tokens: from left to right, at each place the longest.
#[derive(Debug, Default)]
pub(crate) struct Added {
    all: Finder,
    plain: Finder,
}

#[derive(Debug, Default)]
struct Finder {
    tokens: Vec<AddedToken>,
    automaton: Option<AhoCorasick>,
}

impl Added {
    /// A finder of these tokens; empty texts are left out.
    pub fn new(tokens: Vec<AddedToken>) -> Result<Self> {
        let plain = tokens.iter().filter(|t| !t.special).cloned().collect();
        Ok(Self { all: Finder::new(tokens)?, plain: Finder::new(plain)? })
    }

    /// The parts of `text` in order, with or without special tokens.
    pub fn split<'t>(&self, text: &'t str, special: bool) -> Vec<Part<'t>> {
        if special { self.all.split(text) } else { self.plain.split(text) }
    }
}

impl Finder {
    fn new(mut tokens: Vec<AddedToken>) -> Result<Self> {
        tokens.retain(|t| !t.text.is_empty());
        let automaton = match tokens.is_empty() {
            true => None,
            false => Some(
                AhoCorasick::builder()
                    .match_kind(MatchKind::LeftmostLongest)
                    .start_kind(StartKind::Unanchored)
                    .build(tokens.iter().map(|t| &t.text))
                    .map_err(|e| {
                        let pattern = format!("{} added tokens", tokens.len());
                        Problem::Pattern { pattern, reason: e.to_string() }.at("added tokens")
                    })?,
            ),
        };
        Ok(Self { tokens, automaton })
    }

    fn split<'t>(&self, text: &'t str) -> Vec<Part<'t>> {
        let mut parts = Vec::new();
        let (mut done, mut at) = (0, 0);
        while let Some((token, start, end)) = self.next(text, at) {
            at = end;
            if token.single_word && touches_word(text, start, end) {
                continue;
            }
            let before = &text[done..start];
            push_text(&mut parts, if token.lstrip { before.trim_end() } else { before });
            parts.push(Part::Token(token.id));
            done = if token.rstrip { text.len() - text[end..].trim_start().len() } else { end };
            at = done;
        }
        push_text(&mut parts, &text[done..]);
        parts
    }

    fn next(&self, text: &str, at: usize) -> Option<(&AddedToken, usize, usize)> {
        let input = Input::new(text).range(at..).anchored(Anchored::No);
        let found = self.automaton.as_ref()?.find(input)?;
        Some((&self.tokens[found.pattern().as_usize()], found.start(), found.end()))
    }
}

fn push_text<'t>(parts: &mut Vec<Part<'t>>, text: &'t str) {
    if !text.is_empty() {
        parts.push(Part::Text(text));
    }
}

/// Whether a letter, digit or underscore stands right before or after.
fn touches_word(text: &str, start: usize, end: usize) -> bool {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    text[..start].chars().next_back().is_some_and(is_word) || text[end..].chars().next().is_some_and(is_word)
}
