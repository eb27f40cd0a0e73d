//! The calls of a step on their way to the device.

use super::{GpuPlan, Ready, ReadyVariant, map};
use crate::{compile::count, tape::Slot};
use nibble_backend::{Counts, Error};
use wgpu::BufferUsages;

impl GpuPlan {
    /// The rows that an entry works on in this step.
    pub(crate) fn rows_of(&self, entry: usize) -> usize {
        count(self.entries[entry].rows, self.rows)
    }

    /// The variant of an entry that this step needs, and its calls.
    pub(crate) fn calls(&self, entry: usize) -> (usize, &[Ready]) {
        let rows = self.rows_of(entry);
        let variants = &self.entries[entry].variants;
        let fits = |v: &ReadyVariant| v.fit.takes(rows, self.shape.get());
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
        let [x, y, z] = call.grid.map(|dim| dim.of(rows, self.shape.get().sequences));
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
    pub(super) fn run_checked(&mut self) -> Result<(), Error> {
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

    pub(super) fn copy_words(&self, groups: &[(&wgpu::BindGroup, u32)], from: u32, to: u32) {
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
