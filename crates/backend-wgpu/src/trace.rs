//! What a tracer is told: how long the device worked on each call.
//!
//! Each call gets a pass of its own with a time stamp at both ends, so a traced step is slower than others, and its calls
//! do not overlap.

use crate::{
    device::Device,
    plan::{GpuPlan, map},
    tape::{Call, Content, Entry, Tape},
};
use nibble_backend::{Category, Error, Span, Tracer};
use nibble_graph::Label;
use std::sync::Arc;
use wgpu::{
    BufferUsages, ComputePassDescriptor, ComputePassTimestampWrites, QUERY_RESOLVE_BUFFER_ALIGNMENT,
    QUERY_SET_MAX_QUERIES, QuerySetDescriptor, QueryType,
};

/// Calls that are timed by one submission: two stamps each.
const CALLS: usize = QUERY_SET_MAX_QUERIES as usize / 2;

/// A call's label, and the bytes of its matrices.
type Named = (Arc<Label>, u64);

/// A tracer with the device's clock.
pub struct Trace {
    tracer: Arc<dyn Tracer>,
    /// The call's label and the bytes of its matrices: by entry, variant and call.
    labels: Vec<Vec<Vec<Named>>>,
    queries: wgpu::QuerySet,
    stamps: wgpu::Buffer,
    staging: wgpu::Buffer,
    /// Nanoseconds of a tick.
    period: f64,
    ticks: Vec<u32>,
}

impl Trace {
    /// A trace of a plan's calls, if the device has a clock.
    pub fn new(device: &Device, tape: &Tape, tracer: Arc<dyn Tracer>) -> Option<Self> {
        if !device.device.features().contains(wgpu::Features::TIMESTAMP_QUERY) {
            return None;
        }
        let queries = device.device.create_query_set(&QuerySetDescriptor {
            label: None,
            ty: QueryType::Timestamp,
            count: 2 * CALLS as u32,
        });
        let bytes = (16 * CALLS as u64).next_multiple_of(QUERY_RESOLVE_BUFFER_ALIGNMENT);
        let stamps = BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC;
        let staging = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
        Some(Self {
            tracer,
            labels: tape.entries.iter().map(|entry| labels(tape, entry)).collect(),
            queries,
            stamps: device.buffer_for("time stamps", bytes, stamps).ok()?,
            staging: device.buffer_for("time stamps", bytes, staging).ok()?,
            period: f64::from(device.queue.get_timestamp_period()),
            ticks: vec![0; 4 * CALLS],
        })
    }
}

/// What each call of an entry is called, and how many bytes of matrices it may read.
fn labels(tape: &Tape, entry: &Entry) -> Vec<Vec<Named>> {
    let one = |call: &Call| {
        let what = format!("{} [{}]", entry.what.what, call.shader.label);
        let planes = call.slots.iter().map(|slot| &tape.slots[slot.0]);
        let bytes = planes.filter(|s| matches!(s.content, Content::Plane)).map(|s| s.bytes).sum();
        (Arc::new(Label { layer: entry.what.layer, what }), bytes)
    };
    entry.variants.iter().map(|variant| variant.calls.iter().map(one).collect()).collect()
}

impl GpuPlan {
    /// Runs a step that was written, call by call, and tells the tracer of each.
    pub(crate) fn run_traced(&mut self, trace: &mut Trace) -> Result<(), Error> {
        let mut first = 0;
        while first < self.entries.len() {
            let (mut end, mut count) = (first, 0);
            while end < self.entries.len() && count + self.calls(end).1.len() <= CALLS {
                count += self.calls(end).1.len();
                end += 1;
            }
            let start = trace.tracer.now();
            self.submit(|encoder| {
                let mut at = 0;
                for entry in first..end {
                    for call in self.calls(entry).1 {
                        let mut pass = encoder.begin_compute_pass(&ComputePassDescriptor {
                            label: None,
                            timestamp_writes: Some(ComputePassTimestampWrites {
                                query_set: &trace.queries,
                                beginning_of_pass_write_index: Some(at),
                                end_of_pass_write_index: Some(at + 1),
                            }),
                        });
                        self.encode_call(&mut pass, self.rows_of(entry), call);
                        at += 2;
                    }
                }
                encoder.resolve_query_set(&trace.queries, 0..2 * count as u32, &trace.stamps, 0);
                encoder.copy_buffer_to_buffer(&trace.stamps, 0, &trace.staging, 0, 16 * count as u64);
            });
            map(&self.device, &trace.staging, &mut trace.ticks[..4 * count])?;
            self.tell(trace, first..end, start);
            first = end;
        }
        Ok(())
    }

    fn tell(&self, trace: &Trace, entries: std::ops::Range<usize>, start: u64) {
        let tick = |i: usize| u64::from(trace.ticks[2 * i]) | u64::from(trace.ticks[2 * i + 1]) << 32;
        let time = |i: usize| start + (tick(i).wrapping_sub(tick(0)) as f64 * trace.period) as u64;
        let mut at = 0;
        for entry in entries {
            let (variant, calls) = self.calls(entry);
            for (label, bytes) in trace.labels[entry].get(variant).into_iter().flatten().take(calls.len()) {
                trace.tracer.span(Span {
                    label,
                    category: Category::Op,
                    thread: 0,
                    start: time(at),
                    end: time(at + 1),
                    counts: [("rows", self.rows_of(entry) as u64), ("bytes", *bytes), ("", 0)],
                });
                at += 2;
            }
        }
    }
}
