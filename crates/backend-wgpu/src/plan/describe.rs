//! What the device is told of a step.

use super::GpuPlan;
use crate::{
    tape::{Content, StepShape},
    turns,
};
use nibble_backend::{Error, Step};
use nibble_graph::Rope;

/// What a step writes, kept to be filled again.
#[derive(Default)]
pub(crate) struct Words {
    rows: Vec<u32>,
    sequences: Vec<u32>,
    pages: Vec<u32>,
    turns: Vec<u32>,
    /// Filled while a step is begun from which the device goes on by draws.
    pub(crate) draws: Vec<u32>,
    /// Numbers from outside, by input.
    pub(crate) given: Vec<Vec<u32>>,
}

impl GpuPlan {
    /// Writes what the kernels need to know of the step.
    fn write(&mut self, step: &Step<'_>, ahead: usize) -> Result<(), Error> {
        self.feed.get_mut().begin(&self.device)?;
        let w = &mut self.words;
        w.rows.clear();
        w.sequences.clear();
        w.pages.clear();
        let mut first = 0;
        for (i, sequence) in step.sequences.iter().enumerate() {
            let count = step.sequence[first..].iter().take_while(|&&s| s as usize == i).count();
            let pages = w.pages.len() as u32;
            w.sequences.extend([pages, sequence.state, sequence.prompt_len, 0]);
            w.sequences.extend([first as u32, count as u32, 0, 0]);
            let last = step.positions.get((first + count).wrapping_sub(1)).map_or(0, |&p| p as usize);
            // Steps that follow without the host need the pages after these.
            let used = if count == 0 { 0 } else { (last + ahead) / nibble_backend::PAGE_LEN + 1 };
            w.pages.extend_from_slice(&sequence.pages[..used.min(sequence.pages.len())]);
            first += count;
        }
        for row in 0..step.tokens.len() {
            let sequence = step.sequence[row];
            let pages = w.sequences[8 * sequence as usize];
            w.rows.extend([step.tokens[row], step.positions[row], sequence, pages]);
        }
        for (i, slot) in self.tape.slots.iter().enumerate() {
            let words: &[u32] = match &slot.content {
                Content::Rows => &self.words.rows,
                Content::Sequences => &self.words.sequences,
                Content::Pages => &self.words.pages,
                Content::Wanted => step.wanted,
                Content::Draws => &self.words.draws,
                Content::Given(input, _) => &self.words.given[*input],
                Content::Turns(rope) => {
                    fill_turns(rope, step, &mut self.words.turns);
                    &self.words.turns
                }
                _ => continue,
            };
            self.feed.get_mut().add(&self.device, self.places[i], words)?;
        }
        Ok(())
    }

    /// Checks a step and writes it to the device.
    pub(crate) fn begin(&mut self, step: &Step<'_>, ahead: usize) -> Result<(), Error> {
        step.check(&self.limits, self.vocab, self.recurrent)?;
        self.device.check_now()?;
        self.rows = [step.tokens.len(), step.wanted.len()];
        let reach = step.positions.iter().max().map_or(0, |&p| p as usize + 1);
        let alone = step.sequence.is_sorted_by(|a, b| a < b);
        self.shape.set(StepShape { sequences: step.sequences.len(), alone, reach });
        self.read = None;
        if !step.tokens.is_empty() {
            self.write(step, ahead)?;
        }
        Ok(())
    }
}

/// The cosines and sines of a step's rows.
fn fill_turns(rope: &Rope, step: &Step<'_>, words: &mut Vec<u32>) {
    words.clear();
    for row in 0..step.tokens.len() {
        let prompt_len = step.sequences[step.sequence[row] as usize].prompt_len;
        turns::append(rope, step.positions[row], prompt_len, words);
    }
}
