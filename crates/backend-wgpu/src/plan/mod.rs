//! A compiled graph on its device: runs steps, is read, moves pages and states.

mod borrow;
mod contract;
mod describe;
mod memory;
mod run;

use crate::{
    decode::{Decoder, logits},
    device::Device,
    feed::Feed,
    kernels::copy,
    modes::Mode,
    tape::{Call, Content, Dim, Fit, Slot, StepShape, Tape, Word},
    trace::Trace,
};
use borrow::Taken;
use describe::Words;
use memory::{READ_ROWS, description_bytes, upload};
use nibble_backend::{Counts, Error, Limits, Memory};
use nibble_graph::{Graph, Rows};
use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::Arc,
};
use wgpu::BufferUsages;

pub(crate) use crate::device::Pipeline;
#[cfg(target_vendor = "apple")]
pub use borrow::Window;
pub use borrow::{Import, Lent, lent};
pub(crate) use memory::{bind, map};
pub use memory::{memory, staging_bytes};

/// A call with its pipeline and buffers.
pub(crate) struct Ready {
    pipeline: Arc<Pipeline>,
    bindings: wgpu::BindGroup,
    words: Vec<u32>,
    grid: [Dim; 3],
}

/// A variant's steps and calls.
struct ReadyVariant {
    fit: Fit,
    calls: Vec<Ready>,
}

pub(crate) struct ReadyEntry {
    rows: Rows,
    variants: Vec<ReadyVariant>,
}

/// A plan of the GPU backend.
pub struct GpuPlan {
    pub(crate) device: Arc<Device>,
    pub(crate) limits: Limits,
    memory: Memory,
    vocab: usize,
    pub(crate) recurrent: bool,
    pub(crate) tape: Tape,
    pub(crate) entries: Vec<ReadyEntry>,
    buffers: Vec<wgpu::Buffer>,
    /// The buffer of each slot.
    places: Vec<usize>,
    copy: Arc<Pipeline>,
    /// Bind groups for copies: a layer's buffer and the words of a page or a slot of it.
    banks: Vec<(wgpu::BindGroup, u32)>,
    states: Vec<(wgpu::BindGroup, u32, Slot)>,
    staging: wgpu::Buffer,
    /// What the staging buffer's rows were read into: output, first row, numbers.
    read: Option<(usize, usize)>,
    numbers: Vec<f32>,
    /// Rows of the last step: of tokens, of wanted ones.
    pub(crate) rows: [usize; 2],
    /// What else its calls depend on; it reaches further with each step that follows without the host.
    pub(crate) shape: Cell<StepShape>,
    pub(crate) words: Words,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) mode: &'static Mode,
    counts: Cell<Counts>,
    feed: RefCell<Feed>,
    pub(crate) trace: Option<Trace>,
}

/// Why a plan could not be made.
pub enum Refused {
    /// An error.
    Error(Error),
    /// A codec says more than its form holds.
    Wide(&'static str),
}

impl From<Error> for Refused {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl GpuPlan {
    /// Reserves memory, brings the weights to the device, compiles the kernels.
    pub fn new(device: &Arc<Device>, graph: &Graph, limits: &Limits, tape: Tape) -> Result<Self, Refused> {
        let (places, sizes) = tape.share();
        let staging_len = staging_bytes(&tape, limits);
        let mut lent = lent(device, graph, &tape);
        let taken = borrow::take(device, &mut lent);
        let memory = memory(&tape, &sizes, &places, staging_len, &lent);
        let in_place: HashMap<usize, &Taken> =
            taken.iter().map(|(slot, taken)| (places[*slot], taken)).collect();
        let buffer = |(place, &bytes)| match in_place.get(&place) {
            Some(taken) => Ok(taken.buffer.clone()),
            None => device.buffer("a buffer", bytes),
        };
        let buffers: Vec<_> = sizes.iter().enumerate().map(buffer).collect::<Result<_, _>>()?;
        let staging = device.buffer_for(
            "staging",
            staging_len as u64,
            BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        )?;
        let factors = upload(
            device,
            graph,
            limits,
            &tape,
            |slot| taken.contains_key(&slot.0),
            |slot| &buffers[places[slot.0]],
        )?;
        let ready = |call: &Call| -> Result<Ready, Error> {
            let pipeline = device.pipeline(&call.shader)?;
            let part = |slot: &Slot| match taken.get(&slot.0) {
                Some(taken) => taken.binding(),
                None => buffers[places[slot.0]].as_entire_buffer_binding(),
            };
            let bindings = memory::bind_parts(device, &pipeline, call.slots.iter().map(part));
            let mut words = vec![0];
            words.extend(call.words.iter().map(|word| match *word {
                Word::Int(n) => n,
                Word::Float(x) => x.to_bits(),
                Word::Factor(matrix, part) => factors[matrix][part].to_bits(),
            }));
            Ok(Ready { pipeline, bindings, words, grid: call.grid })
        };
        let mut entries = Vec::with_capacity(tape.entries.len());
        for entry in &tape.entries {
            let mut variants = vec![];
            for variant in &entry.variants {
                let calls = variant.calls.iter().map(&ready).collect::<Result<_, _>>()?;
                variants.push(ReadyVariant { fit: variant.fit, calls });
            }
            entries.push(ReadyEntry { rows: entry.rows, variants });
        }
        let copy = device.pipeline(&copy::copy())?;
        let (mut banks, mut states) = (vec![], vec![]);
        for (i, slot) in tape.slots.iter().enumerate() {
            let group = || bind(device, &copy, [&buffers[places[i]]].into_iter());
            match slot.content {
                Content::Bank(words) => banks.push((group(), words)),
                Content::State(words) => states.push((group(), words, Slot(i))),
                _ => {}
            }
        }
        let place = |is: fn(&Content) -> bool| {
            tape.slots.iter().position(|slot| is(&slot.content)).map(|slot| places[slot])
        };
        let rows = place(|content| matches!(content, Content::Rows));
        let draws = place(|content| matches!(content, Content::Draws));
        let decoder = match (logits(&tape.outputs), rows, draws) {
            (Some((slot, width)), Some(rows), Some(draws)) => Some(Decoder::new(
                device,
                (&buffers[places[slot.0]], width),
                [&buffers[rows], &buffers[draws]],
                limits.sequences,
            )?),
            _ => None,
        };
        let mut words = Words::default();
        for slot in tape.slots.iter().filter(|slot| matches!(slot.content, Content::Given(..))) {
            words.given.push(Vec::with_capacity(slot.bytes as usize / 4));
        }
        let feed = Feed::new(device, description_bytes(&tape))?;
        device.wait()?;
        Ok(Self {
            decoder,
            mode: Mode::standard(),
            counts: Cell::default(),
            feed: RefCell::new(feed),
            trace: None,
            device: Arc::clone(device),
            limits: limits.clone(),
            memory,
            vocab: graph.vocab(),
            recurrent: graph.is_recurrent(),
            numbers: vec![0.0; staging_len / 4],
            tape,
            entries,
            buffers,
            places,
            copy,
            banks,
            states,
            staging,
            read: None,
            rows: [0; 2],
            shape: Cell::default(),
            words,
        })
    }

    fn buffer(&self, slot: Slot) -> &wgpu::Buffer {
        &self.buffers[self.places[slot.0]]
    }
}
