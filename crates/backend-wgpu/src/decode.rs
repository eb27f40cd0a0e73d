//! Generation without waiting: the device chooses tokens and goes on with them, the host reads them one step behind.

use crate::{
    device::Device,
    kernels::argmax,
    plan::{GpuPlan, Pipeline, bind},
    tape::Content,
};
use nibble_backend::{Error, Step};
use nibble_graph::Rows;
use std::sync::{
    Arc,
    mpsc::{Receiver, channel},
};
use wgpu::{BufferUsages, PollType};

/// Steps that are under way at once: the device works on one while the next is being written.
const IN_FLIGHT: usize = 2;

/// What choosing tokens takes.
pub struct Decoder {
    pipeline: Arc<Pipeline>,
    bindings: wgpu::BindGroup,
    tokens: wgpu::Buffer,
    /// Where the host reads the tokens of a step: one buffer for each step under way.
    staging: Vec<wgpu::Buffer>,
    width: usize,
    /// Tokens of a step at most.
    most: usize,
}

/// A step under way.
struct Flight {
    index: wgpu::SubmissionIndex,
    mapped: Receiver<Result<(), wgpu::BufferAsyncError>>,
}

impl Decoder {
    /// Bytes that it reserves for so many sequences.
    pub fn bytes(sequences: usize) -> usize {
        sequences.saturating_mul(4 * 2 * IN_FLIGHT)
    }

    /// A decoder for a plan's first output.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn new(
        device: &Device,
        logits: (&wgpu::Buffer, usize),
        rows: &wgpu::Buffer,
        most: usize,
    ) -> Result<Self, Error> {
        let pipeline = device.pipeline(&argmax::argmax())?;
        let tokens = device.buffer("tokens", (most * IN_FLIGHT * 4) as u64)?;
        let bindings = bind(device, &pipeline, [logits.0, rows, &tokens].into_iter());
        let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        let staging = (0..IN_FLIGHT)
            .map(|_| device.buffer_for("tokens", most as u64 * 4, usage))
            .collect::<Result<_, _>>()?;
        Ok(Self { pipeline, bindings, tokens, staging, width: logits.1, most })
    }
}

impl GpuPlan {
    /// Whether what a step needs beside its tokens does not change from one to the next, so that the device can go on
    /// alone; and nothing is lost by steps that were one too many.
    pub(crate) fn decodes(&self) -> bool {
        let by_row = self.tape.slots.iter().any(|s| matches!(s.content, Content::Turns(_)));
        self.decoder.is_some() && !self.recurrent && !by_row && !self.limits.check_finite
    }

    /// [`nibble_backend::Plan::decode`].
    pub(crate) fn run_ahead(
        &mut self,
        step: &Step<'_>,
        steps: usize,
        take: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<(), Error> {
        self.begin(step, steps)?;
        let mut under_way = std::collections::VecDeque::with_capacity(IN_FLIGHT);
        let (mut sent, mut more) = (0, true);
        while more && (sent < steps || !under_way.is_empty()) {
            while sent < steps && under_way.len() < IN_FLIGHT {
                under_way.push_back((sent % IN_FLIGHT, self.send(sent % IN_FLIGHT)));
                sent += 1;
            }
            let Some((at, flight)) = under_way.pop_front() else { break };
            more = self.receive(at, flight, take)?;
        }
        // What was one too many is waited for, so that its buffers are free.
        for (at, flight) in under_way {
            self.receive(at, flight, &mut |_| false)?;
        }
        Ok(())
    }

    /// Submits a step whose tokens are on the device.
    fn send(&self, at: usize) -> Flight {
        let decoder = self.decoder.as_ref().expect("decodes() was asked");
        let rows = self.rows[0];
        let bytes = rows as u64 * 4;
        let index = self.submit(|encoder| {
            {
                let mut pass = encoder.begin_compute_pass(&Default::default());
                for entry in &self.entries {
                    self.encode(&mut pass, entry);
                }
                pass.set_pipeline(&decoder.pipeline.pipeline);
                pass.set_bind_group(0, &decoder.bindings, &[]);
                let words = [rows as u32, decoder.width as u32, (at * decoder.most) as u32];
                pass.set_immediates(0, bytemuck::cast_slice(&words));
                pass.dispatch_workgroups(rows as u32, 1, 1);
            }
            let from = (at * decoder.most * 4) as u64;
            encoder.copy_buffer_to_buffer(&decoder.tokens, from, &decoder.staging[at], 0, bytes);
        });
        let (send, mapped) = channel();
        decoder.staging[at].map_async(wgpu::MapMode::Read, 0..bytes, move |result| {
            let _ = send.send(result);
        });
        Flight { index, mapped }
    }

    /// Waits for a step and hands out its tokens.
    fn receive(
        &self,
        at: usize,
        flight: Flight,
        take: &mut dyn FnMut(&[u32]) -> bool,
    ) -> Result<bool, Error> {
        let device = &self.device;
        let wait = PollType::Wait { submission_index: Some(flight.index), timeout: None };
        device.device.poll(wait).map_err(|e| device.error(e.to_string()))?;
        device.check()?;
        let mapped = flight.mapped.recv().map_err(|_| device.error("a step was not finished"))?;
        mapped.map_err(|e| device.error(e.to_string()))?;
        let decoder = self.decoder.as_ref().expect("decodes() was asked");
        let staging = &decoder.staging[at];
        let view =
            staging.get_mapped_range(0..self.rows[0] as u64 * 4).map_err(|e| device.error(e.to_string()))?;
        let more = take(bytemuck::cast_slice(&view));
        drop(view);
        staging.unmap();
        Ok(more)
    }
}

/// The first output, if it can be decoded from: one row for each wanted row.
pub fn logits(outputs: &[(crate::tape::Slot, Rows, usize)]) -> Option<(crate::tape::Slot, usize)> {
    outputs.first().filter(|o| o.1 == Rows::Wanted).map(|o| (o.0, o.2))
}
