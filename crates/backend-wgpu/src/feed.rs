//! How a step's description gets to the device: through buffers that the host fills in turns. They are reserved with the plan,
//! where wgpu's own way reserves one for each piece of each step.

use crate::device::Device;
use nibble_backend::Error;
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use wgpu::{BufferUsages, MapMode, PollType};

/// Buffers that are filled in turns: the host writes one while the device may still read the other.
const TURNS: usize = 2;

/// Words on their way to buffers of the device.
pub struct Feed {
    turns: Vec<Turn>,
    /// The one that is filled.
    now: usize,
    /// What it holds: to which buffer, from which byte on, how many.
    pieces: Vec<(usize, u64, u64)>,
    used: u64,
}

struct Turn {
    buffer: wgpu::Buffer,
    /// Whether the host may write to it.
    free: Arc<AtomicBool>,
}

impl Feed {
    /// Bytes that it reserves for descriptions of so many.
    pub fn bytes(description: u64) -> u64 {
        description.max(16).saturating_mul(TURNS as u64)
    }

    /// A feed for descriptions of up to `bytes`.
    ///
    /// # Errors
    /// [`Error::Memory`] if the device has not so much.
    pub fn new(device: &Device, bytes: u64) -> Result<Self, Error> {
        let usage = BufferUsages::MAP_WRITE | BufferUsages::COPY_SRC;
        let turn = |_| {
            let turn =
                Turn { buffer: device.buffer_for("a step", bytes.max(16), usage)?, free: Arc::default() };
            turn.ask();
            Ok(turn)
        };
        let turns = (0..TURNS).map(turn).collect::<Result<_, Error>>()?;
        Ok(Self { turns, now: 0, pieces: Vec::with_capacity(8), used: 0 })
    }

    /// Begins a description, and forgets one that was not sent.
    ///
    /// # Errors
    /// [`Error::Device`] if the device no longer answers.
    pub fn begin(&mut self, device: &Device) -> Result<(), Error> {
        self.pieces.clear();
        self.used = 0;
        let free = |feed: &Self| feed.turns[feed.now].free.load(Ordering::Acquire);
        if !free(self) {
            device.device.poll(PollType::Poll).map_err(|e| device.error(e.to_string()))?;
        }
        if !free(self) {
            device.wait()?;
        }
        if free(self) { Ok(()) } else { Err(device.error("a step's buffer did not come back")) }
    }

    /// Adds words for the start of buffer `to`.
    ///
    /// # Errors
    /// [`Error::Device`] if the buffer is not there for the host.
    pub fn add(&mut self, device: &Device, to: usize, words: &[u32]) -> Result<(), Error> {
        if words.is_empty() {
            return Ok(());
        }
        let (start, bytes) = (self.used, size_of_val(words) as u64);
        // Mapped ranges begin at multiples of eight.
        self.used = (start + bytes).next_multiple_of(8);
        let view = self.turns[self.now].buffer.get_mapped_range_mut(start..start + bytes);
        let mut view = view.map_err(|e| device.error(e.to_string()))?;
        view.slice(..).copy_from_slice(bytemuck::cast_slice(words));
        self.pieces.push((to, start, bytes));
        Ok(())
    }

    /// Copies the description, if there is one that was not sent, to where it belongs; whether there was.
    pub fn send(&self, encoder: &mut wgpu::CommandEncoder, buffers: &[wgpu::Buffer]) -> bool {
        if self.pieces.is_empty() {
            return false;
        }
        let turn = &self.turns[self.now];
        turn.free.store(false, Ordering::Release);
        turn.buffer.unmap();
        for &(to, start, bytes) in &self.pieces {
            encoder.copy_buffer_to_buffer(&turn.buffer, start, &buffers[to], 0, bytes);
        }
        true
    }

    /// After what [`Self::send`] wrote was submitted: asks for the buffer back, and turns to the next.
    pub fn turn(&mut self) {
        self.pieces.clear();
        self.turns[self.now].ask();
        self.now = (self.now + 1) % TURNS;
    }
}

impl Turn {
    /// Asks for the buffer; it is free once the device has read it.
    fn ask(&self) {
        let free = Arc::clone(&self.free);
        self.buffer
            .map_async(MapMode::Write, .., move |result| free.store(result.is_ok(), Ordering::Release));
    }
}
