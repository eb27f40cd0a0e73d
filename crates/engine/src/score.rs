//! All logits of a text: for perplexity, parity and `nibble logits`.

use crate::{Engine, Error};
use nibble_backend::{PAGE_LEN, Sequence, Step};

impl Engine {
    /// Runs `tokens` from an empty context and calls `row` with each position and its logits, in order.
    ///
    /// Nothing is taken from or left in the prefix cache, so that the figures depend on the tokens alone.
    ///
    /// # Errors
    /// As for a request with that prompt; [`Error::NotFinite`] for logits that are not; [`Error::Pages`] while other requests hold the pages it needs.
    pub fn score(&mut self, tokens: &[u32], mut row: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.check_prompt(tokens)?;
        let needed = tokens.len().div_ceil(PAGE_LEN);
        if needed > self.pages.available() {
            return Err(Error::Pages { needed, available: self.pages.available() });
        }
        let pages: Vec<_> = (0..needed).map_while(|_| self.pages.take()).collect();
        let state = if self.recurrent { self.states.take() } else { None };
        let result = self.score_on(tokens, &pages, state, &mut row);
        pages.iter().for_each(|&page| self.pages.release(page));
        state.into_iter().for_each(|slot| self.states.release(slot));
        result
    }

    fn score_on(
        &mut self,
        tokens: &[u32],
        pages: &[u32],
        state: Option<u32>,
        row: &mut impl FnMut(usize, &[f32]),
    ) -> Result<(), Error> {
        if let Some(slot) = state {
            self.plan.clear_state(slot)?;
        }
        let chunk = self.chunk.min(self.limits.wanted);
        for (i, part) in tokens.chunks(chunk).enumerate() {
            let first = i * chunk;
            let positions: Vec<_> = (first as u32..).take(part.len()).collect();
            let wanted: Vec<_> = (0..part.len() as u32).collect();
            let pages = &pages[..(first + part.len()).div_ceil(PAGE_LEN)];
            let prompt_len = tokens.len() as u32;
            self.plan.run(&Step {
                tokens: part,
                positions: &positions,
                sequence: &vec![0; part.len()],
                sequences: &[Sequence { pages, state: state.unwrap_or(0), prompt_len }],
                wanted: &wanted,
            })?;
            for n in 0..part.len() {
                self.plan.read(0, n, &mut self.logits)?;
                if let Some(token) = self.logits.iter().position(|logit| !logit.is_finite()) {
                    let (position, found) = (first + n, self.logits[token]);
                    return Err(Error::NotFinite { position, token, found });
                }
                row(first + n, &self.logits);
            }
        }
        Ok(())
    }
}
