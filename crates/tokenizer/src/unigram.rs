//! Unigram: of all ways to write a text as tokens, the one with the highest sum of scores (Viterbi).

use aho_corasick::{AhoCorasick, BuildError};

use crate::lookup::{Lookup, byte_tokens};
use crate::vocab::TokenType;

/// How far below the lowest score an unknown character scores. Source: SentencePiece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A unigram encoder.
#[derive(Debug)]
pub(crate) struct Unigram {
    /// Finds every token at every place; `None` without any.
    tokens: Option<AhoCorasick>,
    /// The id of each pattern of `tokens`.
    ids: Vec<u32>,
    scores: Vec<f64>,
    bytes: Option<Box<[u32; 256]>>,
    unk: Option<u32>,
    unknown_score: f64,
}

/// The best way to reach a place in the text.
#[derive(Clone, Copy)]
struct Reached {
    score: f64,
    start: usize,
    id: Option<u32>,
}

impl Unigram {
    /// Builds the tables; `scores` holds one score for each token, and tokens without a finite one are not used.
    ///
    /// # Errors
    /// Of the automaton, for more tokens than it can hold.
    pub fn new(
        tokens: &[String],
        all: &Lookup,
        scores: Vec<f64>,
        kind: impl Fn(usize) -> TokenType,
        unk: Option<u32>,
        byte_fallback: bool,
    ) -> Result<Self, BuildError> {
        let lowest = scores.iter().copied().filter(|score| score.is_finite()).fold(0.0, f64::min);
        let is_text =
            |id: usize| !matches!(kind(id), TokenType::Control | TokenType::Unknown | TokenType::Byte);
        let ids =
            (0..tokens.len()).filter(|&id| is_text(id) && !tokens[id].is_empty() && scores[id].is_finite());
        let ids: Vec<u32> = ids.map(|id| id as u32).collect();
        let texts = ids.iter().map(|&id| &tokens[id as usize]);
        let tokens = if ids.is_empty() { None } else { Some(AhoCorasick::new(texts)?) };
        Ok(Self {
            tokens,
            ids,
            scores,
            bytes: if byte_fallback { byte_tokens(all) } else { None },
            unk,
            unknown_score: lowest - UNKNOWN_PENALTY,
        })
    }

    /// Appends the ids of `text`. Neighbouring unknown characters become one token.
    pub fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let mut unknown: Option<(usize, usize)> = None;
        for (start, end, id) in self.best_path(text) {
            match (id, unknown) {
                (None, Some((from, _))) => unknown = Some((from, end)),
                (None, None) => unknown = Some((start, end)),
                (Some(id), _) => {
                    self.push_unknown(text, unknown.take(), out);
                    out.push(id);
                }
            }
        }
        self.push_unknown(text, unknown, out);
    }

    fn push_unknown(&self, text: &str, range: Option<(usize, usize)>, out: &mut Vec<u32>) {
        let Some((start, end)) = range else { return };
        match &self.bytes {
            Some(ids) => out.extend(text[start..end].bytes().map(|byte| ids[byte as usize])),
            None => out.extend(self.unk),
        }
    }

    fn best_path(&self, text: &str) -> Vec<(usize, usize, Option<u32>)> {
        let nowhere = Reached { score: f64::NEG_INFINITY, start: 0, id: None };
        let mut reached = vec![nowhere; text.len() + 1];
        reached[0].score = 0.0;
        let mut found = self.tokens.iter().flat_map(|tokens| tokens.find_overlapping_iter(text)).peekable();
        for (start, c) in text.char_indices() {
            let end = start + c.len_utf8();
            let mut has_token = false;
            while let Some(token) = found.next_if(|token| token.end() <= end) {
                let id = self.ids[token.pattern().as_usize()];
                let score = reached[token.start()].score + self.scores[id as usize];
                improve(&mut reached[end], Reached { score, start: token.start(), id: Some(id) });
                has_token |= token.start() == start;
            }
            if !has_token {
                let score = reached[start].score + self.unknown_score;
                improve(&mut reached[end], Reached { score, start, id: None });
            }
        }
        walk_back(&reached)
    }
}

fn improve(best: &mut Reached, other: Reached) {
    if other.score > best.score {
        *best = other;
    }
}

fn walk_back(reached: &[Reached]) -> Vec<(usize, usize, Option<u32>)> {
    let mut path = Vec::new();
    let mut end = reached.len() - 1;
    while end > 0 {
        let step = reached[end];
        path.push((step.start, end, step.id));
        end = step.start;
    }
    path.reverse();
    path
}
