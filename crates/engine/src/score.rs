//! What the model computes over a text: for perplexity, parity and `nibble logits`.

use crate::{Engine, Error};
use nibble_backend::{PAGE_LEN, Sequence, Step};

/// The tokens to run, and what is read of them.
struct Text<'a> {
    tokens: &'a [u32],
    /// The first position that is read.
    first: usize,
    /// How many outputs of the graph are read.
    outputs: usize,
}

impl Engine {
    /// Runs `tokens` from an empty context and calls `row` with each position and its logits, in order.
    ///
    /// Nothing is taken from or left in the prefix cache, so that the figures depend on the tokens alone.
    ///
    /// # Errors
    /// As for a request with that prompt; [`Error::NotFinite`] for logits that are not; [`Error::Pages`] while other
    /// requests hold the pages it needs.
    pub fn score(&mut self, tokens: &[u32], row: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.score_from(0, tokens, row)
    }

    /// As [`Self::score`], for the positions from `first` on alone.
    ///
    /// # Errors
    /// As [`Self::score`].
    pub fn score_from(
        &mut self,
        first: usize,
        tokens: &[u32],
        mut row: impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        self.read_text(&Text { tokens, first, outputs: 1 }, &mut |_, position, numbers| {
            row(position, numbers)
        })
    }

    /// As [`Self::score`], for every output of the graph: `row` gets the output, the position and its numbers.
    ///
    /// # Errors
    /// As [`Self::score`].
    pub fn outputs(
        &mut self,
        tokens: &[u32],
        mut row: impl FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        self.read_text(&Text { tokens, first: 0, outputs: self.widths.len() }, &mut row)
    }

    fn read_text(
        &mut self,
        text: &Text<'_>,
        row: &mut impl FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        self.check_prompt(text.tokens)?;
        let needed = text.tokens.len().div_ceil(PAGE_LEN);
        if needed > self.pages.available() {
            return Err(Error::Pages { needed, available: self.pages.available() });
        }
        let pages: Vec<_> = (0..needed).map_while(|_| self.pages.take()).collect();
        let state = if self.recurrent { self.states.take() } else { None };
        let result = self.read_on(text, &pages, state, row);
        pages.iter().for_each(|&page| self.pages.release(page));
        state.into_iter().for_each(|slot| self.states.release(slot));
        result
    }

    fn read_on(
        &mut self,
        text: &Text<'_>,
        pages: &[u32],
        state: Option<u32>,
        row: &mut impl FnMut(usize, usize, &[f32]),
    ) -> Result<(), Error> {
        if let Some(slot) = state {
            self.plan.clear_state(slot)?;
        }
        let mut numbers = vec![0.0; self.widths.iter().copied().max().unwrap_or(0)];
        let (total, mut start) = (text.tokens.len(), 0);
        while start < total {
            let len = match text.first.min(total).checked_sub(start) {
                Some(unread @ 1..) => self.chunk.min(unread),
                _ => self.chunk.min(self.limits.wanted).min(total - start),
            };
            let wanted: Vec<_> = if start < text.first { vec![] } else { (0..len as u32).collect() };
            let positions: Vec<_> = (start as u32..).take(len).collect();
            self.plan.run(&Step {
                tokens: &text.tokens[start..start + len],
                positions: &positions,
                sequence: &vec![0; len],
                sequences: &[Sequence {
                    pages: &pages[..(start + len).div_ceil(PAGE_LEN)],
                    state: state.unwrap_or(0),
                    prompt_len: total as u32,
                }],
                wanted: &wanted,
            })?;
            for n in 0..wanted.len() {
                for output in 0..text.outputs {
                    let numbers = &mut numbers[..self.widths[output]];
                    self.plan.read(output, n, numbers)?;
                    let damage = numbers.iter().position(|x| !x.is_finite()).filter(|_| output == 0);
                    if let Some(token) = damage {
                        let (position, found) = (start + n, numbers[token]);
                        return Err(Error::NotFinite { position, token, found });
                    }
                    row(output, start + n, numbers);
                }
            }
            start += len;
        }
        Ok(())
    }
}
