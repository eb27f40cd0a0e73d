//! Generation without waiting: the device chooses tokens and goes on with them, the host reads them one submission behind.

use crate::{
    device::Device,
    kernels::{argmax, draw},
    modes::{End, MOST_FOLDED, MOST_IN_FLIGHT},
    plan::{GpuPlan, Pipeline, bind},
    tape::Content,
};
use nibble_backend::{Draw, Error, Step};
use nibble_graph::Rows;
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
};
use wgpu::{BufferUsages, PollType};

/// What choosing tokens takes.
pub struct Decoder {
    /// For the largest logit of each row, and for draws.
    choosers: [Vec<Chooser>; 2],
    tokens: wgpu::Buffer,
    /// Where the host reads tokens: one buffer for each submission under way.
    staging: Vec<wgpu::Buffer>,
    width: usize,
    /// Tokens of a step at most.
    most: usize,
}

/// A kernel on the way to a token.
struct Chooser {
    pipeline: Arc<Pipeline>,
    bindings: wgpu::BindGroup,
    /// Workgroups for a row.
    parts: u32,
}

/// A submission under way.
struct Flight {
    /// Its place among those under way.
    at: usize,
    /// Its steps.
    steps: usize,
    index: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

impl Decoder {
    /// Bytes that it reserves for so many sequences.
    pub fn bytes(sequences: usize) -> usize {
        sequences.saturating_mul(4 * 2 * MOST_IN_FLIGHT * MOST_FOLDED + 8 * argmax::PARTS as usize)
    }

    /// A decoder for a plan's first output.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn new(
        device: &Device,
        logits: (&wgpu::Buffer, usize),
        [rows, draws]: [&wgpu::Buffer; 2],
        most: usize,
    ) -> Result<Self, Error> {
        let bytes = (most * MOST_FOLDED * 4) as u64;
        let tokens = device.buffer("tokens", bytes * MOST_IN_FLIGHT as u64)?;
        let found = device.buffer("largest logits", most as u64 * 8 * u64::from(argmax::PARTS))?;
        let chooser = |shader, buffers: &[&wgpu::Buffer], parts| {
            let pipeline = device.pipeline(&shader)?;
            let bindings = bind(device, &pipeline, buffers.iter().copied());
            Ok::<_, Error>(Chooser { pipeline, bindings, parts })
        };
        let choosers = [
            vec![
                chooser(argmax::scan(), &[logits.0, &found], argmax::PARTS)?,
                chooser(argmax::argmax(), &[&found, rows, &tokens], 1)?,
            ],
            vec![chooser(draw::draw(), &[logits.0, draws, rows, &tokens], 1)?],
        ];
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let staging = (0..MOST_IN_FLIGHT)
            .map(|_| device.buffer_for("tokens", bytes, usage))
            .collect::<Result<_, _>>()?;
        Ok(Self { choosers, tokens, staging, width: logits.1, most })
    }
}

impl GpuPlan {
    /// Whether what a step needs beside its tokens does not change from one to the next, so that the device can go on
    /// alone; and nothing is lost by steps that were one too many. Traced steps are timed call by call.
    pub(crate) fn decodes(&self) -> bool {
        let by_row = self.tape.slots.iter().any(|s| matches!(s.content, Content::Turns(_)));
        self.decoder.is_some()
            && self.trace.is_none()
            && !self.recurrent
            && !by_row
            && self.words.given.is_empty()
            && !self.limits.check_finite
    }

    /// [`nibble_backend::Plan::decode`].
    pub(crate) fn run_ahead(
        &mut self,
        step: &Step<'_>,
        draws: &[Draw],
        steps: usize,
        take: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<(), Error> {
        self.words.draws.clear();
        if draws.iter().any(|draw| draw.top_k != 1) {
            for (draw, &position) in draws.iter().zip(step.positions) {
                self.words.draws.extend(draw::words(draw, position));
            }
        }
        let begun = self.begin(step, steps);
        let chooser = usize::from(!self.words.draws.is_empty());
        self.words.draws.clear();
        begun?;
        let mut under_way = VecDeque::with_capacity(MOST_IN_FLIGHT);
        let (mut flights, mut sent, mut more) = (0, 0, true);
        while more && (sent < steps || !under_way.is_empty()) {
            while sent < steps && under_way.len() < self.mode.in_flight {
                let count = self.mode.folded.min(steps - sent);
                let idle = under_way.is_empty();
                under_way.push_back(self.send(flights % MOST_IN_FLIGHT, count, chooser, idle)?);
                (flights, sent) = (flights + 1, sent + count);
            }
            let Some(flight) = under_way.pop_front() else { break };
            more = self.receive(flight, take)?;
        }
        // What was too many is waited for, so that its buffers are free.
        for flight in under_way {
            self.receive(flight, &mut |_| false)?;
        }
        Ok(())
    }

    /// Submits steps whose tokens are on the device.
    fn send(&self, at: usize, steps: usize, chooser: usize, idle: bool) -> Result<Flight, Error> {
        let decoder = self.decoder.as_ref().expect("decodes() was asked");
        let rows = self.rows[0];
        let first = at * decoder.most * MOST_FOLDED;
        let bytes = (steps * rows * 4) as u64;
        let choosers = &decoder.choosers[chooser];
        let choose = |pass: &mut wgpu::ComputePass<'_>, step: usize, call: usize| {
            let call = &choosers[call];
            pass.set_pipeline(&call.pipeline.pipeline);
            pass.set_bind_group(0, &call.bindings, &[]);
            let words = [rows as u32, decoder.width as u32, (first + step * rows) as u32];
            pass.set_immediates(0, bytemuck::cast_slice(&words));
            self.count(|counts| counts.calls += 1);
            pass.dispatch_workgroups(rows as u32, call.parts, 1);
        };
        let end = End { count: choosers.len(), write: &choose };
        let index = self.hand_over(steps, idle, Some(end), |encoder| {
            let from = (first * 4) as u64;
            encoder.copy_buffer_to_buffer(&decoder.tokens, from, &decoder.staging[at], 0, bytes);
        })?;
        let (send, mapped) = channel();
        decoder.staging[at].map_async(wgpu::MapMode::Read, 0..bytes, move |result| {
            let _ = send.send(result);
        });
        Ok(Flight { at, steps, index, mapped })
    }

    /// Waits for a submission and hands out its tokens, step by step.
    fn receive(&self, flight: Flight, take: &mut dyn FnMut(&[u32]) -> bool) -> Result<bool, Error> {
        let device = &self.device;
        let wait = PollType::Wait { submission_index: Some(flight.index), timeout: None };
        device.device.poll(wait).map_err(|e| device.error(e.to_string()))?;
        device.check()?;
        let mapped = flight.mapped.recv().map_err(|_| device.error("a step was not finished"))?;
        mapped.map_err(|e| device.error(e.to_string()))?;
        let decoder = self.decoder.as_ref().expect("decodes() was asked");
        let staging = &decoder.staging[flight.at];
        let bytes = (flight.steps * self.rows[0] * 4) as u64;
        let view = staging.get_mapped_range(0..bytes).map_err(|e| device.error(e.to_string()))?;
        let tokens: &[u32] = bytemuck::cast_slice(&view);
        let more = tokens.chunks_exact(self.rows[0]).all(take);
        drop(view);
        staging.unmap();
        Ok(more)
    }
}

/// The first output, if it can be decoded from: one row for each wanted row.
pub fn logits(outputs: &[(crate::tape::Slot, Rows, usize)]) -> Option<(crate::tape::Slot, usize)> {
    outputs.first().filter(|o| o.1 == Rows::Wanted).map(|o| (o.0, o.2))
}
