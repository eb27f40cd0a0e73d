//! Kernels on small inputs before they are trusted: drivers compile some of them wrongly, without a word.
//!
//! A kernel that can be wrong in such a way carries a [`Twin`]: what it is to compute, in plain Rust. Once for a device, driver
//! and build the very pipeline that a plan would use runs on seeded inputs of awkward shape, and the result is compared.

mod arrange;
mod attention;
mod norms;
mod numbers;
mod product;
mod rotated;
mod store;
mod verdict;

pub use arrange::Arrange;
pub use attention::{Attend, How};
pub use norms::{Embed, L2Norm, Quantize, RmsNorm, RmsNormCodes, ToHalf};
pub use product::Product;
pub use rotated::{Rotated, RotatedBack};
pub use store::{Cache, Store};

use crate::{
    device::{Device, Pipeline},
    plan::{bind, map},
    shader::{Access, Shader},
};
use nibble_backend::Error;
use std::{fmt::Debug, sync::Arc};
use wgpu::BufferUsages;

/// What a kernel is to compute.
pub trait Twin: Debug + Send + Sync {
    /// Inputs, and what must come of them. `shader` is the kernel that is to be tried.
    fn case(&self, shader: &Shader) -> Case;
}

/// Kernels on small buffers, and what they must leave there.
#[derive(Debug, Default)]
pub struct Case {
    /// Contents of the buffers before.
    pub buffers: Vec<Vec<u32>>,
    /// What runs, in order.
    pub jobs: Vec<Job>,
    /// What must be in buffers after.
    pub expected: Vec<Expected>,
}

/// A kernel on buffers of a [`Case`].
#[derive(Debug)]
pub struct Job {
    /// The kernel.
    pub shader: Shader,
    /// Its buffers.
    pub buffers: Vec<usize>,
    /// Its immediates, the number of rows first.
    pub words: Vec<u32>,
    /// Its workgroups.
    pub grid: [usize; 3],
}

/// What must be in a buffer. Tolerances are shares of the largest number.
#[derive(Debug)]
pub enum Expected {
    /// 32-bit floats.
    Floats { buffer: usize, numbers: Vec<f64>, tolerance: f64 },
    /// Whole numbers.
    Words { buffer: usize, words: Vec<u32> },
    /// Codes of eight bits with scale and scaled sum for every 16, one scale for 32.
    Codes { codes: usize, scales: usize, numbers: Vec<f64>, tolerance: f64 },
    /// Rows in half precision in the order 0, 2, 1, 3, with a scale for each row.
    Halves { buffer: usize, scales: usize, row_len: usize, numbers: Vec<f64>, tolerance: f64 },
}

/// What outputs hold before a kernel runs: it must leave alone what is not its own.
pub const UNTOUCHED: f32 = 7777.0;

impl Case {
    /// Adds a buffer.
    pub fn add(&mut self, words: Vec<u32>) -> usize {
        self.buffers.push(words);
        self.buffers.len() - 1
    }

    /// Adds a buffer of floats.
    pub fn add_floats(&mut self, numbers: &[f64]) -> usize {
        self.add(numbers.iter().map(|&x| (x as f32).to_bits()).collect())
    }

    /// Adds a buffer that is to be written.
    pub fn add_output(&mut self, words: usize) -> usize {
        self.add(vec![UNTOUCHED.to_bits(); words])
    }
}

/// Runs the case of each kernel; those that are wrong have a reason. Kernels without a twin are taken as they are.
///
/// # Errors
/// [`Error::Device`] if the device fails, [`Error::Memory`] if it has no room for the cases.
pub fn try_out(device: &Device, shaders: &[&Shader]) -> Result<Vec<Option<String>>, Error> {
    let mut found = vec![None; shaders.len()];
    let mut ready = vec![];
    for (i, shader) in shaders.iter().enumerate() {
        let Some(twin) = &shader.twin else { continue };
        let case = twin.case(shader);
        // What the driver does not even compile is wrong too.
        match Prepared::new(device, &case) {
            Ok(prepared) => ready.push((i, case, prepared)),
            Err(Error::Device { what, .. }) => {
                device.check_now()?;
                found[i] = Some(what);
            }
            Err(e) => return Err(e),
        }
    }
    let results = run(device, &ready)?;
    for ((i, case, _), buffers) in ready.iter().zip(&results) {
        found[*i] = case.expected.iter().find_map(|expected| verdict::wrong(expected, buffers));
    }
    Ok(found)
}

/// A kernel with buffers, ready to run.
pub struct Bound {
    pub pipeline: Arc<Pipeline>,
    pub bindings: wgpu::BindGroup,
    /// Immediates, the number of rows first.
    pub words: Vec<u32>,
    /// Workgroups.
    pub grid: [u32; 3],
}

impl Bound {
    /// Appends so many runs of it, one after the other.
    pub fn encode(&self, pass: &mut wgpu::ComputePass<'_>, times: usize) {
        pass.set_pipeline(&self.pipeline.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        pass.set_immediates(0, bytemuck::cast_slice(&self.words));
        let [x, y, z] = self.grid;
        (0..times).for_each(|_| pass.dispatch_workgroups(x, y, z));
    }
}

/// A case on the device.
struct Prepared {
    buffers: Vec<wgpu::Buffer>,
    jobs: Vec<Bound>,
}

impl Prepared {
    fn new(device: &Device, case: &Case) -> Result<Self, Error> {
        let pipelines: Vec<_> =
            case.jobs.iter().map(|job| device.pipeline(&job.shader)).collect::<Result<_, _>>()?;
        let mut buffers = vec![];
        for words in &case.buffers {
            let buffer = device.buffer("a kernel's first try", words.len() as u64 * 4)?;
            device.queue.write_buffer(&buffer, 0, bytemuck::cast_slice(words));
            buffers.push(buffer);
        }
        let jobs = case.jobs.iter().zip(pipelines).map(|(job, pipeline)| {
            let bindings = bind(device, &pipeline, job.buffers.iter().map(|&b| &buffers[b]));
            Bound { pipeline, bindings, words: job.words.clone(), grid: job.grid.map(|n| n as u32) }
        });
        let jobs = jobs.collect();
        Ok(Self { buffers, jobs })
    }
}

/// What all buffers of all cases hold in the end; empty for those that are only read.
fn run(device: &Device, cases: &[(usize, Case, Prepared)]) -> Result<Vec<Vec<Vec<u32>>>, Error> {
    let written = |case: &Case, buffer: usize| {
        let writes = |job: &Job| {
            let access = job.buffers.iter().zip(&job.shader.access);
            access.into_iter().any(|(&b, access)| b == buffer && *access == Access::Write)
        };
        case.jobs.iter().any(writes)
    };
    let mut copies = vec![];
    let mut total = 0;
    for (_, case, prepared) in cases {
        for (b, words) in case.buffers.iter().enumerate() {
            let len = if written(case, b) { words.len() } else { 0 };
            copies.push((&prepared.buffers[b], total, len));
            total += len;
        }
    }
    if total == 0 {
        return Ok(vec![]);
    }
    let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
    let staging = device.buffer_for("results of kernels' first tries", total as u64 * 4, usage)?;
    let mut encoder = device.device.create_command_encoder(&Default::default());
    {
        let mut pass = encoder.begin_compute_pass(&Default::default());
        cases.iter().flat_map(|(_, _, p)| &p.jobs).for_each(|job| job.encode(&mut pass, 1));
    }
    for &(buffer, at, len) in copies.iter().filter(|copy| copy.2 > 0) {
        encoder.copy_buffer_to_buffer(buffer, 0, &staging, at as u64 * 4, len as u64 * 4);
    }
    device.queue.submit([encoder.finish()]);
    let mut all = vec![0u32; total];
    map(device, &staging, &mut all)?;
    let mut contents = copies.iter().map(|&(_, at, len)| all[at..at + len].to_vec());
    Ok(cases.iter().map(|(_, case, _)| contents.by_ref().take(case.buffers.len()).collect()).collect())
}
