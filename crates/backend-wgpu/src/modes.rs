//! Ways to hand the calls of steps to the device, the plainest first: what is lost by waiting and by submitting often can be
//! measured on any machine (`nibble bench --gpu-modes`).

use crate::{plan::GpuPlan, tape::StepShape};
use nibble_backend::Error;

/// How the calls of a step go to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pieces {
    /// One by one, each waited for.
    Waited,
    /// One by one.
    Apart,
    /// In one pass of one command buffer.
    Whole,
}

/// A way to hand over steps.
#[derive(Debug)]
pub struct Mode {
    /// What it is called.
    pub name: &'static str,
    /// How the calls of a step go to the device.
    pub pieces: Pieces,
    /// Submissions under way at once: the device works on one while the next is being written.
    pub in_flight: usize,
    /// Steps in one submission.
    pub folded: usize,
}

/// All of them.
pub static MODES: &[Mode] = &[
    Mode { name: "wait-per-op", pieces: Pieces::Waited, in_flight: 1, folded: 1 },
    Mode { name: "submit-per-op", pieces: Pieces::Apart, in_flight: 1, folded: 1 },
    Mode { name: "one-submit", pieces: Pieces::Whole, in_flight: 1, folded: 1 },
    Mode { name: "fold-4", pieces: Pieces::Whole, in_flight: 1, folded: 4 },
    Mode { name: "fold-16", pieces: Pieces::Whole, in_flight: 1, folded: 16 },
    STANDARD,
];

/// What is fastest where it was measured.
const STANDARD: Mode = Mode { name: "two-in-flight", pieces: Pieces::Whole, in_flight: 2, folded: 1 };

/// The most steps in one submission of any mode.
pub const MOST_FOLDED: usize = 16;

/// The most submissions under way in any mode.
pub const MOST_IN_FLIGHT: usize = 2;

/// Where a step is cut if the device has nothing else to do: behind an eighth of it, and behind half. It begins with what is there
/// while the host writes the rest.
const CUTS: [usize; 2] = [8, 2];

/// Places of the graph for which a submission of their own is worth it.
const LEAST: usize = 8;

impl Mode {
    /// The one that is used if nobody asks for another.
    pub fn standard() -> &'static Self {
        MODES.last().expect("there are modes")
    }

    /// The one of that name.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        MODES.iter().find(|mode| mode.name == name)
    }
}

/// What comes behind the calls of a step.
pub(crate) struct End<'a> {
    /// How many calls.
    pub count: usize,
    /// Writes one of them, behind the so-manieth step of its submission.
    pub write: &'a dyn Fn(&mut wgpu::ComputePass<'_>, usize, usize),
}

impl GpuPlan {
    /// Hands the calls of `steps` steps to the device in the plan's way, with `end` after each step and `last` after all. A
    /// device that is `idle` begins before all is written, if the plan's way keeps it busy at all.
    ///
    /// # Errors
    /// If the device failed while it was waited for.
    pub(crate) fn hand_over(
        &self,
        steps: usize,
        idle: bool,
        end: Option<End<'_>>,
        last: impl FnOnce(&mut wgpu::CommandEncoder),
    ) -> Result<wgpu::SubmissionIndex, Error> {
        self.count(|counts| counts.steps += steps as u64);
        if self.mode.pieces == Pieces::Whole {
            let mut begun = 0;
            for cut in CUTS.map(|by| self.entries.len() / by) {
                if idle && self.mode.in_flight > 1 && cut >= begun + LEAST {
                    self.submit(|encoder| {
                        let mut pass = encoder.begin_compute_pass(&Default::default());
                        (begun..cut).for_each(|entry| self.encode(&mut pass, entry));
                    });
                    begun = cut;
                }
            }
            return Ok(self.submit(|encoder| {
                {
                    let mut pass = encoder.begin_compute_pass(&Default::default());
                    for step in 0..steps {
                        let first = if step == 0 { begun } else { 0 };
                        (first..self.entries.len()).for_each(|entry| self.encode(&mut pass, entry));
                        if let Some(end) = &end {
                            (0..end.count).for_each(|call| (end.write)(&mut pass, step, call));
                        }
                        self.reach_on();
                    }
                }
                last(encoder);
            }));
        }
        for step in 0..steps {
            for entry in 0..self.entries.len() {
                let rows = self.rows_of(entry);
                for call in self.calls(entry).1 {
                    self.hand_over_one(|pass| self.encode_call(pass, rows, call))?;
                }
            }
            if let Some(end) = &end {
                for call in 0..end.count {
                    self.hand_over_one(|pass| (end.write)(pass, step, call))?;
                }
            }
            self.reach_on();
        }
        Ok(self.submit(last))
    }

    /// The next step's rows stand one position further.
    fn reach_on(&self) {
        let shape = self.shape.get();
        self.shape.set(StepShape { reach: shape.reach + 1, ..shape });
    }

    fn hand_over_one(&self, work: impl FnOnce(&mut wgpu::ComputePass<'_>)) -> Result<(), Error> {
        self.submit(|encoder| work(&mut encoder.begin_compute_pass(&Default::default())));
        if self.mode.pieces == Pieces::Waited { self.device.wait() } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mode_exceeds_what_is_reserved() {
        for mode in MODES {
            assert!((1..=MOST_IN_FLIGHT).contains(&mode.in_flight), "{}", mode.name);
            assert!((1..=MOST_FOLDED).contains(&mode.folded), "{}", mode.name);
            assert!(Mode::by_name(mode.name).is_some_and(|found| found.name == mode.name));
        }
        assert_eq!(Mode::standard().name, STANDARD.name);
        assert!(Mode::by_name("none").is_none());
    }
}
