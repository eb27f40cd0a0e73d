//! The autotuner: which of the ways to run a product is the fastest on a device, found out once with the shapes of a model.
//!
//! Ways differ in how many results a subgroup makes at once and how far it reads ahead; for many rows in the size of a tile. None of
//! these changes the order of a sum.
//! What would change it (how a long sequence is cut into runs, integer products or not) is not tuned, and in strict mode
//! nothing is, as a driver may fuse a multiplication and an addition in one way and not in another.

use crate::{
    device::{Device, Pipeline},
    plan::bind,
    selfcheck::Bound,
    tape::{Call, Content, Slot, SlotInfo, Tape, Word},
};
use nibble_backend::Error;
use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Whether kernels are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Tuning {
    /// On hardware, for shapes of many rows that no earlier start has measured.
    #[default]
    Auto,
    /// Never: every kernel runs the way that was best elsewhere.
    Off,
    /// For all shapes again, of few rows too, and on software too. Later starts keep to what was found.
    Again,
}

/// Results that a subgroup makes at once, and pieces of a row that a lane asks for ahead; for many rows the height and the width of
/// a tile.
pub type Way = [usize; 2];

/// What keys of kernels for many rows say of these.
pub const MANY: &str = "in tiles";

/// A kernel that can run in several ways.
#[derive(Clone, Debug)]
pub struct Tunable {
    /// Kernel and shape, in words.
    pub key: String,
    /// The rows that it is for.
    pub rows: usize,
    /// Bytes of its matrices.
    pub bytes: u64,
    /// The ways, the usual one first.
    pub ways: Vec<(Way, Call)>,
}

/// The ways to try for a kernel that takes `tile` rows, two matrices with a `gate`, after the usual one.
pub fn ways(usual: Way, tile: usize, gate: bool) -> Vec<Way> {
    // Sums of a lane at once: more of them leave the registers.
    let sums = |[per_sub, _]: &Way| per_sub * tile * if gate { 2 } else { 1 };
    let all = [1, 2, 4].into_iter().flat_map(|per_sub| [1, 2, 4].map(|ahead| [per_sub, ahead]));
    let others = all.filter(|way| *way != usual && sums(way) <= 16 && (tile == 1 || way[1] < 4));
    [usual].into_iter().chain(others).collect()
}

/// Says what ways cost; less is better.
pub trait Meter: Send {
    /// Whether there is time for another kernel.
    fn has_time(&mut self) -> bool;

    /// The cost of each of `ways` of a tunable kernel; `None` if it cannot be found out.
    ///
    /// # Errors
    /// [`Error::Device`] if the device fails.
    fn costs(
        &mut self,
        device: &Device,
        tape: &Tape,
        tunable: &Tunable,
        ways: &[usize],
    ) -> Result<Option<Vec<f64>>, Error>;
}

/// Seconds by the clock.
#[derive(Debug, Default)]
pub struct Stopwatch {
    /// When it was first asked for time.
    start: Option<Instant>,
    warm: bool,
}

/// How long tuning may take at a start, what compiles its kernels too; what is left is for the next one.
const MOST: Duration = Duration::from_secs(2);

/// How long a device is kept busy before anything is measured: idle ones run slowly.
const WARM: Duration = Duration::from_millis(100);

/// How long one reading takes, about.
const READING: f64 = 1e-3;

/// Readings of a way, each beside the first way's; the middle one counts.
const READINGS: usize = 3;

/// Bytes of matrices after which a measured one comes again, if the model has as many: otherwise it would be found in a cache, where the
/// model does not find it.
const WALK: u64 = 256 << 20;

/// The most memory that a measured kernel may use for itself.
const ROOM: u64 = 1 << 30;

impl Meter for Stopwatch {
    fn has_time(&mut self) -> bool {
        self.start.get_or_insert_with(Instant::now).elapsed() < MOST
    }

    fn costs(
        &mut self,
        device: &Device,
        tape: &Tape,
        tunable: &Tunable,
        ways: &[usize],
    ) -> Result<Option<Vec<f64>>, Error> {
        let calls: Vec<&Call> = ways.iter().map(|&way| &tunable.ways[way].1).collect();
        let Some(buffers) = buffers(device, &tape.slots, &calls)? else { return Ok(None) };
        let matrices = buffers.values().map(Vec::len).max().unwrap_or(1);
        let mut ready = vec![];
        for call in &calls {
            let pipeline = device.pipeline(&call.shader)?;
            let bindings = |i: usize| {
                let own = call.slots.iter().map(|slot| &buffers[slot][i % buffers[slot].len()]);
                bind(device, &pipeline, own)
            };
            ready.push(Ready::new(call, &pipeline, (0..matrices).map(bindings), tunable.rows));
        }
        // The next matrix is the one that was read longest ago, whatever the way.
        let mut next = 0;
        let start = Instant::now();
        while !self.warm && start.elapsed() < WARM {
            ready[0].run(device, 8, &mut next)?;
        }
        self.warm = true;
        let seconds = |ready: &Ready, next: &mut usize| -> Result<f64, Error> {
            Ok(ready.run(device, ready.repeats, next)? / ready.repeats as f64)
        };
        for ready in &mut ready {
            ready.repeats = (READING / seconds(ready, &mut next)?.max(1e-6)).clamp(1.0, 64.0) as usize;
        }
        let (usual, others) = ready.split_first().expect("there are ways");
        let mut costs = vec![1.0];
        for other in others {
            let mut readings = [0.0; READINGS];
            for reading in &mut readings {
                // A device that has been idle, as it is while kernels are compiled, becomes faster meanwhile: only neighbours are compared.
                let before = seconds(usual, &mut next)?;
                let between = seconds(other, &mut next)?;
                *reading = 2.0 * between / (before + seconds(usual, &mut next)?);
            }
            readings.sort_by(f64::total_cmp);
            costs.push(readings[READINGS / 2]);
        }
        Ok(Some(costs))
    }
}

/// Bytes of what belongs to matrices.
fn planes<'a>(slots: impl IntoIterator<Item = &'a SlotInfo>) -> impl Iterator<Item = u64> {
    slots.into_iter().filter(|info| matches!(info.content, Content::Plane)).map(|info| info.bytes)
}

/// Buffers for each slot that calls use, several for what belongs to a matrix; `None` if there is no room for them.
fn buffers(
    device: &Device,
    slots: &[SlotInfo],
    calls: &[&Call],
) -> Result<Option<HashMap<Slot, Vec<wgpu::Buffer>>>, Error> {
    let mut all: Vec<Slot> = calls.iter().flat_map(|call| call.slots.iter().copied()).collect();
    all.sort_by_key(|slot| slot.0);
    all.dedup();
    let used: u64 = all.iter().map(|slot| slots[slot.0].bytes).sum();
    let of_one: u64 = planes(all.iter().map(|slot| &slots[slot.0])).sum();
    if used > ROOM {
        return Ok(None);
    }
    let of_model: u64 = planes(slots).sum();
    let matrices = of_model.min(WALK).min(ROOM - (used - of_one)) / of_one.max(1);
    let mut made = HashMap::new();
    for slot in all {
        let info = &slots[slot.0];
        let count = if matches!(info.content, Content::Plane) { matrices.max(1) } else { 1 };
        let buffers = (0..count).map(|_| device.buffer("a measured kernel", info.bytes));
        match buffers.collect::<Result<Vec<_>, _>>() {
            Ok(buffers) => made.insert(slot, buffers),
            Err(Error::Memory { .. }) => return Ok(None),
            Err(e) => return Err(e),
        };
    }
    Ok(Some(made))
}

/// A call on buffers of its own.
struct Ready {
    /// With one matrix after the other.
    bound: Vec<Bound>,
    repeats: usize,
}

impl Ready {
    fn new(
        call: &Call,
        pipeline: &Arc<Pipeline>,
        bindings: impl Iterator<Item = wgpu::BindGroup>,
        rows: usize,
    ) -> Self {
        let words = call.words.iter().map(|word| match *word {
            Word::Int(n) => n,
            Word::Float(x) => x.to_bits(),
            Word::Factor(..) => 1f32.to_bits(),
        });
        let words: Vec<u32> = [rows as u32].into_iter().chain(words).collect();
        let grid = call.grid.map(|dim| dim.of(rows, 1));
        let bound = |bindings| Bound { pipeline: Arc::clone(pipeline), bindings, words: words.clone(), grid };
        Self { bound: bindings.map(bound).collect(), repeats: 1 }
    }

    /// Runs it `repeats` times, one after the other, from matrix `next` on; returns seconds.
    fn run(&self, device: &Device, repeats: usize, next: &mut usize) -> Result<f64, Error> {
        let mut encoder = device.device.create_command_encoder(&Default::default());
        {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            let matrices = (*next..*next + repeats).map(|i| &self.bound[i % self.bound.len()]);
            matrices.for_each(|bound| bound.encode(&mut pass, 1));
        }
        *next += repeats;
        let commands = encoder.finish();
        let start = Instant::now();
        device.queue.submit([commands]);
        device.wait()?;
        Ok(start.elapsed().as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuOptions, build::Options, common, compile, trust_tests};

    #[test]
    fn every_way_is_measured_on_as_many_matrices_as_there_are() {
        let Some(gpu) = common::gpu(GpuOptions::default()) else { return };
        let (device, graph, limits) = (gpu.device(), trust_tests::layer(), trust_tests::limits());
        let options = Options { tune: true, ..Options::new(&device.caps, &limits) };
        let tape = compile::tape(&graph, options, "a device").unwrap();
        let of_model: u64 = planes(&tape.slots).sum();
        for tunable in tape.tunables.iter().filter(|tunable| tunable.rows == 1) {
            let call = &tunable.ways[0].1;
            let of_one: u64 = planes(call.slots.iter().map(|slot| &tape.slots[slot.0])).sum();
            let buffers = buffers(device, &tape.slots, &[call]).unwrap().unwrap();
            let most = buffers.values().map(Vec::len).max();
            assert_eq!(most, Some((of_model / of_one) as usize), "{}", tunable.key);
            assert!(buffers.values().any(|of| of.len() == 1), "{}: inputs are not matrices", tunable.key);
        }
        let tunable = &tape.tunables[0];
        let ways: Vec<usize> = (0..tunable.ways.len()).collect();
        let costs = Stopwatch::default().costs(device, &tape, tunable, &ways).unwrap().unwrap();
        assert_eq!(costs.len(), ways.len());
        assert!(costs.iter().all(|cost| cost.is_finite() && *cost > 0.0), "{costs:?}");
    }
}
