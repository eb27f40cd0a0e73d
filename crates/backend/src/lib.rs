//! What a device must do to run graphs: plan, reserve, run steps, be read.
//!
//! Callers hold a `Box<dyn Backend>` and never learn which one. All that can be refused is refused by
//! [`Backend::compile`], before any token; a [`Plan`] then runs steps without allocating.
#![forbid(unsafe_code)]

mod ceiling;
mod counts;
mod device;
mod error;
mod memory;
mod step;
mod trace;

pub use ceiling::{Ceiling, Numbers};
pub use counts::Counts;
pub use device::Device;
pub use error::Error;
pub use memory::Memory;
pub use step::{PAGE_LEN, Sequence, Step, check_given};
pub use trace::{Category, Span, Tracer, timed};

use nibble_graph::{Graph, Op};
pub use nibble_sampler::Draw;
use std::{fmt, str::FromStr, sync::Arc};

/// How keys and values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KvType {
    /// As computed: 32 bits a number. For parity work.
    F32,
    /// 16 bits a number.
    #[default]
    F16,
    /// Blocks of 32 in the `q8_0` layout: 8.5 bits a number.
    Q8_0,
    /// Blocks of 32 in the `q4_0` layout, rotated by a Hadamard transform first: 4.5 bits a number.
    Q4_0,
}

impl KvType {
    /// All of them with the names that users type.
    pub const ALL: [(&'static str, Self); 4] =
        [("f32", Self::F32), ("f16", Self::F16), ("q8_0", Self::Q8_0), ("q4_0", Self::Q4_0)];

    /// Bytes that a row of `len` numbers takes; block types round up to whole blocks.
    pub fn row_bytes(self, len: usize) -> usize {
        match self {
            Self::F32 => len * 4,
            Self::F16 => len * 2,
            Self::Q8_0 => len.div_ceil(32) * 34,
            Self::Q4_0 => len.div_ceil(32) * 18,
        }
    }
}

impl fmt::Display for KvType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, _) = Self::ALL.iter().find(|(_, kv)| kv == self).expect("every type is listed");
        f.write_str(name)
    }
}

impl FromStr for KvType {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(name, _)| *name == s);
        found.map(|&(_, kv)| kv).ok_or_else(|| format!("expected f32, f16, q8_0 or q4_0, found `{s}`"))
    }
}

/// How the inputs of matrix products are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activations {
    /// As the backend is fastest: 8-bit integers with a scale for every 32 on the CPU.
    #[default]
    Auto,
    /// As two 8-bit integers each, the second for what the first loses: nearly as exact as floats, for twice the
    /// products. Devices without integer products take floats.
    I16,
    /// As 32-bit floats everywhere. For parity work.
    F32,
}

/// What a plan must be able to hold; all of it is reserved when the graph is compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most tokens in a step.
    pub rows: usize,
    /// The most rows whose outputs are wanted in a step.
    pub wanted: usize,
    /// The most sequences in a step.
    pub sequences: usize,
    /// The longest sequence, in tokens.
    pub context: usize,
    /// Pages of [`PAGE_LEN`] positions in the bank.
    pub pages: usize,
    /// Slots of recurrent state: one for each live sequence and each checkpoint. 0 for graphs without state.
    pub state_slots: usize,
    /// How keys and values are kept.
    pub kv: KvType,
    /// How the inputs of matrix products are kept.
    pub activations: Activations,
    /// Whether every op's result is searched for NaN and infinities, and a step fails at the first
    /// ([`Error::NotFinite`]). For finding damage: slower, and never a change of the answer.
    pub check_finite: bool,
}

/// A place where graphs run.
pub trait Backend: Send + Sync {
    /// The device, for reports.
    fn device(&self) -> Device;

    /// The device in one line.
    fn describe(&self) -> String {
        self.device().to_string()
    }

    /// Bare loops that show what the device can do at most; `None` where none are written.
    ///
    /// # Errors
    /// [`Error::Memory`] if the memory that they need is not there.
    fn ceiling(&self) -> Result<Option<Box<dyn Ceiling>>, Error> {
        Ok(None)
    }

    /// Bytes that can be reserved on this device now, if it says.
    fn available_memory(&self) -> Option<u64>;

    /// Tokens of a prompt in one step from which on the device is hardly faster with more.
    fn prompt_rows(&self) -> usize {
        512
    }

    /// Whether `compile` takes this op as it is; ops that it does not are expanded first ([`Graph::expanded`]).
    fn runs(&self, op: &Op) -> bool;

    /// What `compile` with the same arguments would reserve. Reserves nothing.
    ///
    /// # Errors
    /// As `compile`, but never for lack of memory.
    fn memory(&self, graph: &Graph, limits: &Limits) -> Result<Memory, Error>;

    /// Tries what `compile` with the same arguments would use, and leaves out what turns out to be wrong: a sentence for the
    /// user each. Where it was not called before, `compile` does the same, in silence.
    ///
    /// # Errors
    /// [`Error::Device`] if nothing right is left.
    fn prepare(&self, _graph: &Graph, _limits: &Limits) -> Result<Vec<String>, Error> {
        Ok(vec![])
    }

    /// Picks kernels and reserves memory. All that can be refused is refused here.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for an op or weight that cannot run here, [`Error::Memory`] if it does not fit.
    fn compile(&self, graph: &Graph, limits: &Limits) -> Result<Box<dyn Plan>, Error>;
}

/// A compiled graph with its reserved memory.
pub trait Plan: Send {
    /// What it was compiled for.
    fn limits(&self) -> &Limits;

    /// What it has reserved.
    fn memory(&self) -> Memory;

    /// Runs one step. Nothing is allocated, and a step outside the limits changes nothing.
    ///
    /// # Errors
    /// [`Error::Step`] if the step breaks a rule of [`Step`] or the limits; [`Error::Device`] if the device failed;
    /// [`Error::NotFinite`] if numbers are checked and one is not finite. Only the first of them leaves keys, values
    /// and states as they were.
    fn run(&mut self, step: &Step<'_>) -> Result<(), Error>;

    /// Gives the numbers of the graph's `input`-th [`Op::Given`], row by row, for the step that runs next.
    ///
    /// # Errors
    /// [`Error::Step`] if there is no such input, or `numbers` is not whole rows within the limits.
    fn give(&mut self, input: usize, numbers: &[f32]) -> Result<(), Error> {
        let found = format!("input {input} of {} numbers", numbers.len());
        Err(Error::Step { what: "numbers from outside", expected: "none".into(), found })
    }

    /// Whether [`Plan::decode`] works here: the device can choose tokens itself.
    fn can_decode(&self) -> bool {
        false
    }

    /// Runs `step` and goes on from it up to `steps` times in all, each sequence with the token that its entry of `draws` takes
    /// (`u32::MAX` if a logit is NaN or infinite, or no token is allowed). After each step `take` gets these tokens, one a
    /// sequence, and says whether to go on; the device may be some steps ahead by then, which leaves nothing behind but
    /// numbers in pages after the last token taken.
    ///
    /// Every sequence of `step` has one row, all rows are wanted, and its pages reach over all steps.
    ///
    /// # Errors
    /// As [`Plan::run`].
    fn decode(
        &mut self,
        _step: &Step<'_>,
        _draws: &[Draw],
        _steps: usize,
        _take: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<(), Error> {
        Err(Error::Unsupported { device: "this device".into(), what: "choosing tokens".into() })
    }

    /// The ways in which work can be handed to the device, for comparisons, the plainest first; none where there is but one.
    /// They change speed, never the answer.
    fn modes(&self) -> Vec<&'static str> {
        vec![]
    }

    /// The way in use.
    fn mode(&self) -> &'static str {
        ""
    }

    /// Takes another way, by its name.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if it is none of [`Plan::modes`].
    fn set_mode(&mut self, name: &str) -> Result<(), Error> {
        Err(Error::Unsupported { device: "this device".into(), what: format!("mode `{name}`") })
    }

    /// Bytes of the device's own memory that this process uses, for this plan or another, if the device says.
    fn device_memory(&self) -> Option<u64> {
        None
    }

    /// What steps asked of the device so far; zeros where nobody counts.
    fn counts(&self) -> Counts {
        Counts::default()
    }

    /// Copies row `row` of output `output` (an index into [`Graph::outputs`]) of the last step into `into`.
    ///
    /// # Errors
    /// [`Error::Step`] if there is no such row or `into` has another length.
    fn read(&mut self, output: usize, row: usize, into: &mut [f32]) -> Result<(), Error>;

    /// Tells `tracer` of each task of the steps that follow. A device that cannot time them tells nothing.
    fn trace(&mut self, tracer: Arc<dyn Tracer>) {
        drop(tracer);
    }

    /// Copies the keys and values of page `from` to page `to`, in all layers.
    ///
    /// # Errors
    /// [`Error::Step`] if a page is outside the limits.
    fn copy_page(&mut self, from: u32, to: u32) -> Result<(), Error>;

    /// Copies all recurrent state of slot `from` to slot `to`.
    ///
    /// # Errors
    /// [`Error::Step`] if a slot is outside the limits.
    fn copy_state(&mut self, from: u32, to: u32) -> Result<(), Error>;

    /// Makes a slot the start of a sequence: all state zero.
    ///
    /// # Errors
    /// [`Error::Step`] if the slot is outside the limits.
    fn clear_state(&mut self, slot: u32) -> Result<(), Error>;
}
