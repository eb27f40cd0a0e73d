//! Decoding token by token.

use std::sync::Arc;

use crate::pieces::Pieces;

/// Turns ids into text as they come.
///
/// The parts returned by [`push`](Self::push) and [`finish`](Self::finish), joined, are what decoding all ids at once
/// gives: a character split over tokens waits until it is whole, bytes that can never become a character are U+FFFD at
/// once, and a character still unfinished at the end is one U+FFFD.
#[derive(Clone, Debug)]
pub struct StreamDecoder {
    pieces: Arc<Pieces>,
    skip_special: bool,
    strip_space: bool,
    /// The start of a character; at most 3 bytes between calls.
    pending: Vec<u8>,
}

impl StreamDecoder {
    pub(crate) fn new(pieces: Arc<Pieces>, skip_special: bool, at_start: bool) -> Self {
        let strip_space = at_start && pieces.strip_start;
        Self { pieces, skip_special, strip_space, pending: Vec::new() }
    }

    /// The text that `id` completes; often empty while a character is under way.
    pub fn push(&mut self, id: u32) -> String {
        let mut text = String::new();
        self.push_into(id, &mut text);
        text
    }

    /// As [`push`](Self::push), onto the end of `text`.
    pub fn push_into(&mut self, id: u32, text: &mut String) {
        let (from, to) = self.range(id);
        self.pending.extend_from_slice(&self.pieces.get(id)[from..to]);
        let kept = take_text(&self.pending, text);
        self.pending.drain(..self.pending.len() - kept);
    }

    /// The bytes of `id` in this place, whether they are whole characters or not. Use either this or
    /// [`push`](Self::push) on one decoder.
    pub fn push_bytes(&mut self, id: u32) -> &[u8] {
        let (from, to) = self.range(id);
        &self.pieces.get(id)[from..to]
    }

    /// Ends the text: one U+FFFD if a character is unfinished, else nothing.
    pub fn finish(&mut self) -> String {
        let unfinished = !self.pending.is_empty();
        self.pending.clear();
        if unfinished { char::REPLACEMENT_CHARACTER.into() } else { String::new() }
    }

    /// The part of `id`'s bytes that is text here: none of a skipped token, all but the encoding's own space of others.
    fn range(&mut self, id: u32) -> (usize, usize) {
        let piece = self.pieces.get(id);
        if self.pieces.is_special(id) {
            self.strip_space |= self.pieces.strip_after_special;
            return (0, if self.skip_special { 0 } else { piece.len() });
        }
        let strip = self.strip_space && piece.first() == Some(&b' ');
        if !piece.is_empty() {
            self.strip_space = false;
        }
        (usize::from(strip), piece.len())
    }
}

/// Appends all of `bytes` that is settled, and returns the length of the unfinished character at their end.
fn take_text(bytes: &[u8], text: &mut String) -> usize {
    let mut chunks = bytes.utf8_chunks().peekable();
    while let Some(chunk) = chunks.next() {
        text.push_str(chunk.valid());
        let invalid = chunk.invalid();
        if chunks.peek().is_none() && is_unfinished(invalid) {
            return invalid.len();
        }
        if !invalid.is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
        }
    }
    0
}

/// Whether more bytes could make `bytes` a character.
fn is_unfinished(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|e| e.error_len().is_none())
}
