//! WordPiece: within each word the longest token first, without going back.

use crate::lookup::Lookup;
use crate::vocab::TokenType;

/// Words of more characters are unknown, unless the file has another limit. Source: BERT.
pub(crate) const LONGEST_WORD: usize = 100;

/// A WordPiece encoder.
#[derive(Debug)]
pub(crate) struct WordPiece {
    tokens: Lookup,
    unk: Option<u32>,
    /// What is written before a word's first token.
    first: &'static str,
    /// What is written before each other token of a word.
    rest: String,
    /// Words of more characters are unknown.
    longest_word: usize,
}

impl WordPiece {
    /// An encoder over tokens whose word starts are marked (`▁`), as GGUF has them.
    pub fn with_marked_starts(
        tokens: &[String],
        kind: impl Fn(usize) -> TokenType,
        unk: Option<u32>,
    ) -> Self {
        let tokens = Lookup::of_text(tokens, kind);
        Self { tokens, unk, first: "▁", rest: String::new(), longest_word: LONGEST_WORD }
    }

    /// An encoder over tokens whose continuations are marked (`##`), as `tokenizer.json` has them.
    pub fn with_marked_rest(
        tokens: &[String],
        kind: impl Fn(usize) -> TokenType,
        unk: Option<u32>,
        mark: String,
        longest_word: usize,
    ) -> Self {
        Self { tokens: Lookup::of_text(tokens, kind), unk, first: "", rest: mark, longest_word }
    }

    /// Appends the ids of one word; a word that tokens do not cover becomes one unknown token.
    pub fn encode(&self, word: &str, out: &mut Vec<u32>) {
        let before = out.len();
        if word.chars().nth(self.longest_word).is_some() || !self.cover(word, out) {
            out.truncate(before);
            out.extend(self.unk);
        }
    }

    fn cover(&self, word: &str, out: &mut Vec<u32>) -> bool {
        let mut text = String::new();
        let mut at = 0;
        while at < word.len() {
            let mark = if at == 0 { self.first } else { &self.rest };
            text.clear();
            text.push_str(mark);
            text.push_str(&word[at..word.floor_char_boundary(at.saturating_add(self.tokens.longest()))]);
            let Some(id) = self.longest_start(&mut text, mark.len()) else { return false };
            out.push(id);
            at += text.len() - mark.len();
        }
        true
    }

    /// Shortens `text` from its end until it is a token and more than its mark.
    fn longest_start(&self, text: &mut String, mark: usize) -> Option<u32> {
        while text.len() > mark {
            if let Some(id) = self.tokens.get(text) {
                return Some(id);
            }
            text.pop();
        }
        None
    }
}
