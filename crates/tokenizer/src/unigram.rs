//! Unigram: of all ways to write a text as tokens, the one with the highest sum of scores (Viterbi).

use crate::lookup::{Lookup, byte_tokens};
use crate::vocab::TokenType;

/// How far below the lowest score an unknown character scores. Source: SentencePiece.
const UNKNOWN_PENALTY: f64 = 10.0;

/// A unigram encoder.
#[derive(Debug)]
pub(crate) struct Unigram {
    tokens: Lookup,
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
    /// Builds the tables; `scores` holds one score for each token.
    pub fn new(
        tokens: &[String],
        all: &Lookup,
        scores: Vec<f64>,
        kind: impl Fn(usize) -> TokenType,
        unk: Option<u32>,
        byte_fallback: bool,
    ) -> Self {
        let lowest = scores.iter().copied().fold(0.0, f64::min);
        Self {
            tokens: Lookup::of_text(tokens, kind),
            scores,
            bytes: if byte_fallback { byte_tokens(all) } else { None },
            unk,
            unknown_score: lowest - UNKNOWN_PENALTY,
        }
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
        for (start, c) in text.char_indices() {
            let score = reached[start].score;
            let next = start + c.len_utf8();
            let longest = text.floor_char_boundary(start.saturating_add(self.tokens.longest()));
            for end in (next..=longest).filter(|&end| text.is_char_boundary(end)) {
                if let Some(id) = self.tokens.get(&text[start..end]) {
                    let score = score + self.scores[id as usize];
                    improve(&mut reached[end], Reached { score, start, id: Some(id) });
                }
            }
            let unknown = Reached { score: score + self.unknown_score, start, id: None };
            if self.tokens.get(&text[start..next]).is_none() {
                improve(&mut reached[next], unknown);
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
