//! Weights that stay where they are: in the map of their file, where the device's memory is the host's and their bytes are
//! what kernels read.

use crate::{
    device::Device,
    form::Form,
    pack::Piece,
    tape::{Matrix, Tape},
};
use nibble_graph::Graph;
use nibble_tensor::Bytes;
use std::{collections::HashMap, num::NonZero};

/// Makes a buffer of the pages around some bytes, which lives as long as the device needs it; `None` if it cannot.
pub type Import = fn(&wgpu::Device, Bytes, Window) -> Option<wgpu::Buffer>;

/// Whole pages of memory around some bytes. Each of them holds one of these bytes at least, so none can go before they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The address of the first page.
    pub start: usize,
    /// Bytes in all pages.
    pub len: usize,
    /// Where the bytes begin in them.
    pub offset: usize,
}

impl Window {
    /// The pages around `bytes`; `page` is a power of two.
    pub fn around(bytes: &[u8], page: usize) -> Self {
        Self::of(bytes.as_ptr() as usize, bytes.len(), page)
    }

    fn of(address: usize, len: usize, page: usize) -> Self {
        let start = address & !(page - 1);
        let offset = address - start;
        Self { start, len: (offset + len).next_multiple_of(page), offset }
    }
}

/// Bytes that a device takes in place: of the map of a file, or of memory of this process.
#[derive(Clone, Debug)]
pub struct Lent {
    /// The bytes.
    pub bytes: Bytes,
    /// Whether they are memory of this process.
    pub own: bool,
}

/// The planes whose bytes a device can take in place, by slot.
pub fn lent(device: &Device, graph: &Graph, tape: &Tape) -> HashMap<usize, Lent> {
    let mut lent = HashMap::new();
    if device.import.is_none() {
        return lent;
    }
    let limits = device.device.limits();
    let fits = |bytes: &Bytes| {
        let window = Window::around(bytes, page());
        window.offset.is_multiple_of(limits.min_storage_buffer_offset_alignment as usize)
            && window.len as u64 <= limits.max_buffer_size
    };
    for matrix in &tape.matrices {
        for part in 0..matrix.parts.len() {
            let found = in_place(graph, matrix, part).filter(|found| fits(&found.bytes));
            lent.extend(found.map(|found| (matrix.planes[part][0].0, found)));
        }
    }
    lent
}

/// The bytes of a part of a matrix, if they are its plane: floats of the same width, in rows that need not be filled up.
fn in_place(graph: &Graph, matrix: &Matrix, part: usize) -> Option<Lent> {
    let pieces = Piece::cut(graph, &matrix.weights, &matrix.parts[part]);
    let [piece] = &pieces[..] else { return None };
    let same = match matrix.form {
        Form::F32 => "f32",
        Form::F16 => "f16",
        Form::Bf16 => "bf16",
        _ => return None,
    };
    let whole = matrix.row_len.is_multiple_of(32) && piece.weight.name() == same;
    let bytes = whole.then(|| piece.weight.shared_rows(piece.rows.clone()))?;
    Some(Lent { bytes: bytes?, own: piece.weight.is_owned() })
}

/// Bytes that a device has taken in place.
pub struct Taken {
    /// Their pages.
    pub buffer: wgpu::Buffer,
    offset: u64,
    len: u64,
}

impl Taken {
    /// The bytes themselves.
    pub fn binding(&self) -> wgpu::BufferBinding<'_> {
        wgpu::BufferBinding { buffer: &self.buffer, offset: self.offset, size: NonZero::new(self.len) }
    }
}

/// Makes buffers of what is lent, by slot; what the device does not take is lent no more.
pub fn take(device: &Device, lent: &mut HashMap<usize, Lent>) -> HashMap<usize, Taken> {
    let mut taken = HashMap::new();
    let Some(import) = device.import else { return taken };
    lent.retain(|&slot, lent| {
        let window = Window::around(&lent.bytes, page());
        let Some(buffer) = import(&device.device, lent.bytes.clone(), window) else { return false };
        let (offset, len) = (window.offset as u64, lent.bytes.len() as u64);
        taken.insert(slot, Taken { buffer, offset, len });
        true
    });
    taken
}

/// Bytes of a page.
pub fn page() -> usize {
    rustix::param::page_size()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{GpuOptions, common, gpu::Gpu, tune::Stopwatch};
    use nibble_backend::{Activations, Backend, KvType, Limits, Memory};
    use nibble_model::Model;
    use nibble_testkit::{
        TempDir,
        runner::{Runner, limits},
        tiny::{self, VOCAB},
    };
    use std::sync::Arc;

    #[test]
    fn pages_hold_the_bytes_and_no_page_more() {
        let of = |address, len| {
            let window = Window::of(address, len, 4096);
            (window.start, window.len, window.offset)
        };
        assert_eq!(of(0x5000, 4096), (0x5000, 4096, 0));
        assert_eq!(of(0x5020, 4064), (0x5000, 4096, 32));
        assert_eq!(of(0x5020, 4065), (0x5000, 8192, 32));
        assert_eq!(of(0x5fff, 1), (0x5000, 4096, 4095));
    }

    /// A device that takes pages by copying them.
    fn copy(device: &wgpu::Device, bytes: Bytes, window: Window) -> Option<wgpu::Buffer> {
        let buffer = device.create_buffer(&wgpu::BufferDescriptor {
            label: Some("pages"),
            size: window.len as u64,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: true,
        });
        let end = window.offset + bytes.len();
        let mut view = buffer.get_mapped_range_mut(..).ok()?;
        view.slice(window.offset..end).copy_from_slice(&bytes);
        drop(view);
        buffer.unmap();
        Some(buffer)
    }

    fn refuse(_: &wgpu::Device, _: Bytes, _: Window) -> Option<wgpu::Buffer> {
        None
    }

    /// Logits of some rows together and of rows alone, and what the plan holds.
    fn run(import: Option<Import>, model: &Model) -> Option<(Vec<Vec<f32>>, [Memory; 2])> {
        let gpu = common::gpu(GpuOptions::default())?;
        let mut device = Arc::into_inner(gpu.into_device()).expect("no plan has it");
        device.import = import;
        let gpu = Gpu::on(Arc::new(device), GpuOptions::default(), Box::new(Stopwatch::default()));
        let limits = Limits { activations: Activations::Auto, ..limits(12, 40, KvType::F16) };
        let limits = Limits { check_finite: false, ..limits };
        let planned = gpu.memory(&model.graph, &limits).unwrap();
        let plan = gpu.compile(&model.graph, &limits).unwrap();
        let held = plan.memory();
        let mut runner = Runner::new(plan, VOCAB);
        let prompt = tiny::prompt(3, 20);
        runner.start(prompt.len());
        let mut rows = runner.feed(&prompt[..12], 12);
        rows.extend(runner.feed(&prompt[12..], 1));
        Some((rows, [planned, held]))
    }

    #[test]
    fn weights_in_place_are_the_same_weights() {
        let dir = TempDir::new("lent");
        for encoding in ["f32", "f16", "bf16"] {
            let path = dir.file("model.gguf");
            std::fs::write(&path, tiny::llama().gguf_in(nibble_quant::codec(encoding))).unwrap();
            let model = common::open(&path);
            let Some((expected, [_, copied])) = run(None, &model) else { return };
            let (found, [planned, held]) = run(Some(copy), &model).unwrap();
            assert_eq!(found, expected, "{encoding}");
            assert_eq!(planned, held, "{encoding}");
            assert!(held.mapped_weights > 1 << 20, "{encoding}: {held:?}");
            assert_eq!(held.mapped_weights + held.weights, copied.weights, "{encoding}");
            let (found, [_, held]) = run(Some(refuse), &model).unwrap();
            assert_eq!((found, held), (expected, copied), "{encoding}: what cannot be taken is copied");
        }
    }
}
