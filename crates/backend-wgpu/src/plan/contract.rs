//! A plan as the contract of devices has it.

use super::{GpuPlan, READ_ROWS, map};
use crate::{
    compile::count,
    modes::{MODES, Mode},
    tape::Content,
    trace::Trace,
};
use nibble_backend::{Counts, Draw, Error, Limits, Memory, Plan, Step, Tracer, check_given};
use std::sync::Arc;

impl Plan for GpuPlan {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn memory(&self) -> Memory {
        self.memory
    }

    fn run(&mut self, step: &Step<'_>) -> Result<(), Error> {
        self.begin(step, 0)?;
        if step.tokens.is_empty() {
            return Ok(());
        }
        if self.limits.check_finite {
            return self.run_checked();
        }
        if let Some(mut trace) = self.trace.take() {
            let done = self.run_traced(&mut trace);
            self.trace = Some(trace);
            return done;
        }
        self.hand_over(1, true, None, |_| {})?;
        self.device.check()
    }

    fn give(&mut self, input: usize, numbers: &[f32]) -> Result<(), Error> {
        let width = self.tape.slots.iter().find_map(|slot| match slot.content {
            Content::Given(i, width) if i == input => Some(width),
            _ => None,
        });
        let Some(width) = width else {
            return refuse("input", format!("less than {}", self.words.given.len()), input);
        };
        check_given(numbers, width, &self.limits)?;
        let words = &mut self.words.given[input];
        words.clear();
        words.extend(numbers.iter().map(|x| x.to_bits()));
        Ok(())
    }

    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error> {
        let Some(&(slot, rows, width)) = self.tape.outputs.get(output) else {
            return refuse("output", format!("less than {}", self.tape.outputs.len()), output);
        };
        let rows = count(rows, self.rows);
        if row >= rows {
            return refuse("row of an output", format!("less than {rows}"), row);
        }
        if into.len() != width {
            return refuse("length of a row", width.to_string(), into.len());
        }
        let first = row / READ_ROWS * READ_ROWS;
        if self.read != Some((output, first)) {
            let len = (rows - first).min(READ_ROWS) * width;
            let at = (first * width) as u64 * 4;
            self.submit(|e| {
                e.copy_buffer_to_buffer(self.buffer(slot), at, &self.staging, 0, len as u64 * 4);
            });
            map(&self.device, &self.staging, &mut self.numbers[..len])?;
            self.read = Some((output, first));
        }
        let at = (row - first) * width;
        into.copy_from_slice(&self.numbers[at..at + width]);
        Ok(())
    }

    fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        self.trace = Trace::new(&self.device, &self.tape, tracer);
    }

    fn can_decode(&self) -> bool {
        self.decodes()
    }

    fn decode(
        &mut self,
        step: &Step<'_>,
        draws: &[Draw],
        steps: usize,
        take: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<(), Error> {
        self.run_ahead(step, draws, steps, take)
    }

    fn modes(&self) -> Vec<&'static str> {
        MODES.iter().map(|mode| mode.name).collect()
    }

    fn mode(&self) -> &'static str {
        self.mode.name
    }

    fn set_mode(&mut self, name: &str) -> Result<(), Error> {
        self.mode = Mode::by_name(name).ok_or_else(|| Error::Unsupported {
            device: self.device.name.clone(),
            what: format!("mode `{name}`"),
        })?;
        Ok(())
    }

    fn counts(&self) -> Counts {
        Counts { buffers: self.device.buffers_made(), ..self.counts.get() }
    }

    fn device_memory(&self) -> Option<u64> {
        self.device.memory_in_use()
    }

    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error> {
        below("page", self.limits.pages, [from, to])?;
        let groups: Vec<_> = self.banks.iter().map(|(group, words)| (group, *words)).collect();
        self.copy_words(&groups, from, to);
        self.device.check_now()
    }

    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error> {
        below("state slot", self.limits.state_slots, [from, to])?;
        let groups: Vec<_> = self.states.iter().map(|(group, words, _)| (group, *words)).collect();
        self.copy_words(&groups, from, to);
        self.device.check_now()
    }

    fn clear_state(&mut self, slot: u32) -> Result<(), Error> {
        below("state slot", self.limits.state_slots, [slot])?;
        self.submit(|encoder| {
            for (_, words, state) in &self.states {
                let len = u64::from(*words) * 4;
                encoder.clear_buffer(self.buffer(*state), u64::from(slot) * len, Some(len));
            }
        });
        self.device.check_now()
    }
}

fn below<const N: usize>(what: &'static str, limit: usize, numbers: [u32; N]) -> Result<(), Error> {
    match numbers.iter().find(|&&n| n as usize >= limit) {
        Some(&n) => refuse(what, format!("less than {limit}"), n),
        None => Ok(()),
    }
}

fn refuse<T>(what: &'static str, expected: String, found: impl ToString) -> Result<T, Error> {
    Err(Error::Step { what, expected, found: found.to_string() })
}
