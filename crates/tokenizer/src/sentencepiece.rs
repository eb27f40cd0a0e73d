//! SentencePiece BPE: of all neighbours that join to a token, the pair whose token scores highest merges first.

use crate::lookup::{Lookup, byte_tokens};
use crate::merge::{Joined, Merger};
use crate::vocab::TokenType;

/// A SentencePiece encoder.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    tokens: Lookup,
    /// By id: lower for a higher score.
    order: Vec<u32>,
    bytes: Option<Box<[u32; 256]>>,
    unk: Option<u32>,
}

impl SentencePiece {
    /// Builds the tables; `scores` holds one score for each token.
    pub fn new(
        tokens: &[String],
        all: &Lookup,
        scores: &[f32],
        kind: impl Fn(usize) -> TokenType,
        unk: Option<u32>,
    ) -> Self {
        Self {
            tokens: Lookup::of_text(tokens, kind),
            order: scores.iter().map(|&score| descending(score)).collect(),
            bytes: byte_tokens(all),
            unk,
        }
    }

    /// Appends the ids of `text`, whose spaces are already written as `▁`.
    pub fn encode(&self, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.clear();
        let mut buffer = [0; 4];
        for c in text.chars() {
            merger.push(c.len_utf8(), self.tokens.get(c.encode_utf8(&mut buffer)));
        }
        let join = |start: usize, end: usize| {
            let id = self.tokens.get(&text[start..end])?;
            Some(Joined { order: self.order[id as usize], id })
        };
        for symbol in merger.merge(|a, b| join(a.start, b.start + b.len)) {
            match (symbol.id, &self.bytes) {
                (Some(id), _) => out.push(id),
                (None, Some(ids)) => {
                    let bytes = text[symbol.start..symbol.start + symbol.len].bytes();
                    out.extend(bytes.map(|byte| ids[byte as usize]));
                }
                (None, None) => out.extend(self.unk),
            }
        }
    }
}

/// Maps scores to integers in the opposite order: the bits of a float as a signed number, turned round.
fn descending(score: f32) -> u32 {
    let bits = score.to_bits();
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::descending;

    #[test]
    fn higher_scores_come_first() {
        let scores = [f32::INFINITY, 3.5, 1e-9, 0.0, -1e-9, -7.0, -31999.0, f32::NEG_INFINITY];
        assert!(scores.map(descending).is_sorted_by(|a, b| a < b));
    }
}
