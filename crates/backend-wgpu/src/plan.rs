//! A compiled graph on its device: runs steps, is read, moves pages and states.

use crate::{
    compile::count,
    decode::{Decoder, logits},
    device::Device,
    feed::Feed,
    kernels::copy,
    modes::{MODES, Mode},
    pack,
    tape::{Call, Content, Dim, Slot, Tape, Word},
    trace::Trace,
    turns,
};
use nibble_backend::{Counts, Error, Limits, Memory, Plan, Step, Tracer};
use nibble_graph::{Graph, Rope, Rows};
use std::{
    cell::{Cell, RefCell},
    sync::Arc,
};
use wgpu::BufferUsages;

pub(crate) use crate::device::Pipeline;

/// Rows of an output that are brought to the host together.
const READ_ROWS: usize = 8;

/// Bytes handed to the driver at once when weights go to the device.
const UPLOAD: usize = 64 << 20;

/// A call with its pipeline and buffers.
pub(crate) struct Ready {
    pipeline: Arc<Pipeline>,
    bindings: wgpu::BindGroup,
    words: Vec<u32>,
    grid: [Dim; 3],
}

/// A variant's most rows and its calls.
struct ReadyVariant {
    most: usize,
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
    /// Rows of the last step: of tokens, of wanted ones; its sequences.
    pub(crate) rows: [usize; 2],
    sequences: usize,
    words: Words,
    pub(crate) decoder: Option<Decoder>,
    pub(crate) mode: &'static Mode,
    counts: Cell<Counts>,
    feed: RefCell<Feed>,
    pub(crate) trace: Option<Trace>,
}

/// What a step writes, kept to be filled again.
#[derive(Default)]
struct Words {
    rows: Vec<u32>,
    sequences: Vec<u32>,
    pages: Vec<u32>,
    turns: Vec<u32>,
}

/// Bytes by kind.
pub fn memory(tape: &Tape, sizes: &[u64], places: &[usize], outputs: usize) -> Memory {
    let mut memory = Memory::default();
    let mut counted = vec![false; sizes.len()];
    for (slot, &place) in tape.slots.iter().zip(places) {
        if std::mem::replace(&mut counted[place], true) {
            continue;
        }
        let kind = match slot.content {
            Content::Plane | Content::Vector(_) | Content::Table(_) => &mut memory.weights,
            Content::Bank(_) => &mut memory.kv,
            Content::State(_) => &mut memory.state,
            _ => &mut memory.activations,
        };
        *kind = kind.saturating_add(sizes[place].max(1).saturating_add(15) & !15);
    }
    memory.activations = memory.activations.saturating_add(outputs as u64);
    memory
}

/// Bytes of the buffer that outputs are read through.
pub fn staging_bytes(tape: &Tape, limits: &Limits) -> usize {
    let description = Feed::bytes(description_bytes(tape)) as usize;
    let widest = tape.outputs.iter().map(|o| o.2).max().unwrap_or(1);
    let rows = READ_ROWS.min(limits.rows.max(limits.wanted));
    let decoder = Decoder::bytes(limits.sequences);
    (widest.saturating_mul(4 * rows)).saturating_add(decoder).saturating_add(description)
}

/// Bytes of a step's description at most.
fn description_bytes(tape: &Tape) -> u64 {
    let slots = tape.slots.iter().filter(|slot| slot.content.is_description());
    slots.fold(0, |sum, slot| sum.saturating_add(slot.bytes.next_multiple_of(8)))
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
        let memory = memory(&tape, &sizes, &places, staging_len);
        let buffers: Vec<_> =
            sizes.iter().map(|&bytes| device.buffer("a buffer", bytes)).collect::<Result<_, _>>()?;
        let staging = device.buffer_for(
            "staging",
            staging_len as u64,
            BufferUsages::MAP_READ | BufferUsages::COPY_DST,
        )?;
        let factors = upload(device, graph, limits, &tape, |slot| &buffers[places[slot.0]])?;
        let ready = |call: &Call| -> Result<Ready, Error> {
            let pipeline = device.pipeline(&call.shader)?;
            let whole = call.slots.iter().map(|s| &buffers[places[s.0]]);
            let bindings = bind(device, &pipeline, whole);
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
                variants.push(ReadyVariant { most: variant.most, calls });
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
        let rows = tape.slots.iter().position(|s| matches!(s.content, Content::Rows));
        let decoder = match (logits(&tape.outputs), rows) {
            (Some((slot, width)), Some(rows)) => Some(Decoder::new(
                device,
                (&buffers[places[slot.0]], width),
                &buffers[places[rows]],
                limits.sequences,
            )?),
            _ => None,
        };
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
            sequences: 0,
            words: Words::default(),
        })
    }

    fn buffer(&self, slot: Slot) -> &wgpu::Buffer {
        &self.buffers[self.places[slot.0]]
    }

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
            w.rows.extend([step.tokens[row], step.positions[row], step.sequence[row], 0]);
        }
        for (i, slot) in self.tape.slots.iter().enumerate() {
            let words: &[u32] = match &slot.content {
                Content::Rows => &self.words.rows,
                Content::Sequences => &self.words.sequences,
                Content::Pages => &self.words.pages,
                Content::Wanted => step.wanted,
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
        self.sequences = step.sequences.len();
        self.read = None;
        if !step.tokens.is_empty() {
            self.write(step, ahead)?;
        }
        Ok(())
    }

    /// The rows that an entry works on in this step.
    pub(crate) fn rows_of(&self, entry: usize) -> usize {
        count(self.entries[entry].rows, self.rows)
    }

    /// The variant of an entry that this step needs, and its calls.
    pub(crate) fn calls(&self, entry: usize) -> (usize, &[Ready]) {
        let rows = self.rows_of(entry);
        let variants = &self.entries[entry].variants;
        let fits = |v: &ReadyVariant| rows <= v.most;
        match variants.iter().position(fits) {
            Some(variant) if rows > 0 => (variant, &variants[variant].calls),
            _ => (0, &[]),
        }
    }

    /// Appends the calls of an entry.
    pub(crate) fn encode(&self, pass: &mut wgpu::ComputePass<'_>, entry: usize) {
        for call in self.calls(entry).1 {
            self.encode_call(pass, self.rows_of(entry), call);
        }
    }

    /// Appends a call.
    pub(crate) fn encode_call(&self, pass: &mut wgpu::ComputePass<'_>, rows: usize, call: &Ready) {
        pass.set_pipeline(&call.pipeline.pipeline);
        pass.set_bind_group(0, &call.bindings, &[]);
        pass.set_immediates(0, &(rows as u32).to_ne_bytes());
        if call.words.len() > 1 {
            pass.set_immediates(4, bytemuck::cast_slice(&call.words[1..]));
        }
        let [x, y, z] = call.grid.map(|dim| match dim {
            Dim::Fixed(n) => n,
            Dim::Rows(times, by) => (rows as u32 * times).div_ceil(by),
            Dim::Sequences => self.sequences as u32,
        });
        self.count(|counts| counts.calls += 1);
        pass.dispatch_workgroups(x, y, z);
    }

    /// Counts something that the device is asked for.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    pub(crate) fn submit(&self, work: impl FnOnce(&mut wgpu::CommandEncoder)) -> wgpu::SubmissionIndex {
        let mut encoder = self.device.device.create_command_encoder(&Default::default());
        let mut feed = self.feed.borrow_mut();
        let described = feed.send(&mut encoder, &self.buffers);
        work(&mut encoder);
        self.count(|counts| counts.submissions += 1);
        let index = self.device.queue.submit([encoder.finish()]);
        if described {
            feed.turn();
        }
        index
    }

    /// Runs entry after entry, and looks at each result.
    fn run_checked(&mut self) -> Result<(), Error> {
        for i in 0..self.entries.len() {
            self.submit(|encoder| {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                self.encode(&mut pass, i);
            });
            let entry = &self.tape.entries[i];
            let Some((slot, width)) = entry.result else { continue };
            let rows = count(entry.rows, self.rows);
            for row in 0..rows {
                let numbers = self.fetch(slot, row * width, width)?;
                if let Some(column) = numbers.iter().position(|x| !x.is_finite()) {
                    let (what, found) = (entry.what.to_string(), numbers[column]);
                    return Err(Error::NotFinite { what, row, column, found });
                }
            }
        }
        Ok(())
    }

    /// Numbers of a buffer, for checks: it takes memory of its own.
    fn fetch(&self, slot: Slot, first: usize, len: usize) -> Result<Vec<f32>, Error> {
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let to = self.device.buffer_for("a check", len as u64 * 4, usage)?;
        let mut numbers = vec![0.0; len];
        self.submit(|e| e.copy_buffer_to_buffer(self.buffer(slot), first as u64 * 4, &to, 0, len as u64 * 4));
        map(&self.device, &to, &mut numbers)?;
        Ok(numbers)
    }

    fn copy_words(&self, groups: &[(&wgpu::BindGroup, u32)], from: u32, to: u32) {
        self.submit(|encoder| {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            pass.set_pipeline(&self.copy.pipeline);
            for &(bindings, len) in groups {
                pass.set_bind_group(0, bindings, &[]);
                pass.set_immediates(0, bytemuck::cast_slice(&[1, from * len, to * len, len]));
                let blocks = len.div_ceil(256);
                pass.dispatch_workgroups(blocks.min(32_768), blocks.div_ceil(32_768), 1);
            }
        });
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

/// The buffers of a call.
pub(crate) fn bind<'a>(
    device: &Device,
    pipeline: &Pipeline,
    buffers: impl Iterator<Item = &'a wgpu::Buffer>,
) -> wgpu::BindGroup {
    let entries: Vec<_> = buffers
        .enumerate()
        .map(|(i, b)| wgpu::BindGroupEntry { binding: i as u32, resource: b.as_entire_binding() })
        .collect();
    device.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.layout,
        entries: &entries,
    })
}

/// Brings all weights to the device; returns the factor of each part of each matrix.
fn upload<'a>(
    device: &Device,
    graph: &Graph,
    limits: &Limits,
    tape: &Tape,
    buffer: impl Fn(Slot) -> &'a wgpu::Buffer,
) -> Result<Vec<Vec<f32>>, Refused> {
    let mut pending = 0;
    let mut write = |slot: Slot, words: &[u32]| -> Result<(), Error> {
        for (i, piece) in words.chunks(UPLOAD / 4).enumerate() {
            device.queue.write_buffer(buffer(slot), (i * UPLOAD) as u64, bytemuck::cast_slice(piece));
            pending += piece.len() * 4;
            if pending >= UPLOAD {
                device.queue.submit([]);
                device.wait()?;
                pending = 0;
            }
        }
        Ok(())
    };
    for (i, slot) in tape.slots.iter().enumerate() {
        let mut words = vec![];
        match &slot.content {
            Content::Vector(id) => {
                words.extend(graph.weight(*id).data.decode().iter().map(|x| x.to_bits()));
            }
            Content::Table(rope) => {
                (0..limits.context).for_each(|p| turns::append(rope, p as u32, 0, &mut words));
            }
            _ => continue,
        }
        write(Slot(i), &words)?;
    }
    let mut factors = vec![];
    for matrix in &tape.matrices {
        let mut of_parts = vec![];
        for (range, slots) in matrix.parts.iter().zip(&matrix.planes) {
            let pieces = pack::Piece::cut(graph, &matrix.weights, range);
            let Some(packed) = pack::pack(&pieces, &matrix.form) else {
                return Err(Refused::Wide(graph.weight(matrix.weights[0]).data.name()));
            };
            for (slot, words) in slots.iter().zip(&packed.planes) {
                write(*slot, words)?;
            }
            of_parts.push(packed.factor);
        }
        factors.push(of_parts);
    }
    device.queue.submit([]);
    Ok(factors)
}

/// Waits for a buffer and copies it out.
pub(crate) fn map<T: bytemuck::Pod>(
    device: &Device,
    buffer: &wgpu::Buffer,
    into: &mut [T],
) -> Result<(), Error> {
    let len = size_of_val(into) as u64;
    let (send, receive) = std::sync::mpsc::channel();
    buffer.map_async(wgpu::MapMode::Read, 0..len, move |result| {
        let _ = send.send(result);
    });
    device.wait()?;
    let failed = |what: String| device.error(what);
    receive
        .recv()
        .map_err(|_| failed("a buffer was not mapped".into()))?
        .map_err(|e| failed(e.to_string()))?;
    let view = buffer.get_mapped_range(0..len).map_err(|e| failed(e.to_string()))?;
    into.copy_from_slice(bytemuck::cast_slice(&view));
    drop(view);
    buffer.unmap();
    Ok(())
}

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
        self.hand_over(1, None, |_| {})?;
        self.device.check()
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
        steps: usize,
        take: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<(), Error> {
        self.run_ahead(step, steps, take)
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
