//! Buffers: how much they take, how weights come into them, how they are bound and read.

use super::{Lent, Refused};
use crate::{
    decode::Decoder,
    device::{Device, Pipeline},
    feed::Feed,
    pack,
    tape::{Content, Slot, Tape},
    turns,
};
use nibble_backend::{Error, Limits, Memory};
use nibble_graph::Graph;
use std::collections::HashMap;

/// Rows of an output that are brought to the host together.
pub(super) const READ_ROWS: usize = 8;

/// Bytes handed to the driver at once when weights go to the device.
const UPLOAD: usize = 64 << 20;

/// Bytes by kind.
pub fn memory(
    tape: &Tape,
    sizes: &[u64],
    places: &[usize],
    outputs: usize,
    lent: &HashMap<usize, Lent>,
) -> Memory {
    let mut memory = Memory::default();
    let mut counted = vec![false; sizes.len()];
    for (i, (slot, &place)) in tape.slots.iter().zip(places).enumerate() {
        if std::mem::replace(&mut counted[place], true) {
            continue;
        }
        let kind = match slot.content {
            Content::Plane if lent.get(&i).is_some_and(|lent| !lent.own) => &mut memory.mapped_weights,
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
pub(super) fn description_bytes(tape: &Tape) -> u64 {
    let slots = tape.slots.iter().filter(|slot| slot.content.is_description());
    slots.fold(0, |sum, slot| sum.saturating_add(slot.bytes.next_multiple_of(8)))
}

/// Brings all weights to the device that are not there in place; returns the factor of each part of each matrix.
pub(super) fn upload<'a>(
    device: &Device,
    graph: &Graph,
    limits: &Limits,
    tape: &Tape,
    in_place: impl Fn(Slot) -> bool,
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
            if in_place(slots[0]) {
                of_parts.push(1.0);
                continue;
            }
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

/// The buffers of a call.
pub(crate) fn bind<'a>(
    device: &Device,
    pipeline: &Pipeline,
    buffers: impl Iterator<Item = &'a wgpu::Buffer>,
) -> wgpu::BindGroup {
    bind_parts(device, pipeline, buffers.map(|buffer| buffer.as_entire_buffer_binding()))
}

/// The buffers of a call, or parts of them.
pub(super) fn bind_parts<'a>(
    device: &Device,
    pipeline: &Pipeline,
    buffers: impl Iterator<Item = wgpu::BufferBinding<'a>>,
) -> wgpu::BindGroup {
    let entries: Vec<_> = buffers
        .enumerate()
        .map(|(i, b)| wgpu::BindGroupEntry { binding: i as u32, resource: wgpu::BindingResource::Buffer(b) })
        .collect();
    device.device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.layout,
        entries: &entries,
    })
}
