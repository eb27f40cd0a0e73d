//! The devices a model can run on.

use crate::{Error, error::Kind};
use nibble_backend::Backend;
use nibble_backend_cpu::{Cpu, CpuOptions, Isa};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::{Adapter, Cache, Gpu, GpuOptions, Tuning, adapters};

/// Which device of a kind, and how it is to run.
#[derive(Clone, Debug, Default)]
pub struct DeviceOptions {
    /// Threads of the CPU; all cores if `None`.
    pub threads: Option<usize>,
    /// Instruction set of the CPU; the best one if `None`.
    pub isa: Option<String>,
    /// A part of the GPU's name; the first one if `None`.
    pub gpu: Option<String>,
    /// Whether an answer may not depend on what shares the device.
    pub strict: bool,
    /// Where it is kept what was found out about a device's kernels.
    pub cache: Option<Cache>,
    /// Whether a GPU's kernels are measured, to run in the way that is fastest on it.
    pub tuning: Tuning,
}

/// Something that models can run on: what there is to say of it, a line each.
#[derive(Clone, Debug)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Whether `auto` takes it before the devices listed after it.
    pub preferred: bool,
    /// More about it: (what, how much).
    pub details: Vec<(&'static str, String)>,
}

/// A kind of device by the name that users type.
pub struct BackendEntry {
    /// The name.
    pub name: &'static str,
    /// Opens it.
    pub open: fn(&DeviceOptions) -> Result<Box<dyn Backend>, Error>,
    /// What this machine has of the kind, with what the cache knows of it.
    pub find: fn(Option<&Cache>) -> Vec<Found>,
}

/// Every kind of device of this build, the preferred one first.
pub static BACKENDS: &[BackendEntry] = &[
    BackendEntry { name: "gpu", open: open_gpu, find: find_gpus },
    BackendEntry { name: "cpu", open: open_cpu, find: |_| vec![one(&Cpu::new(CpuOptions::default()), true)] },
    BackendEntry {
        name: "reference",
        open: |_| Ok(Box::new(Reference)),
        find: |_| vec![one(&Reference, false)],
    },
];

/// The kinds of device that this machine has.
pub fn present() -> Vec<&'static BackendEntry> {
    BACKENDS.iter().filter(|b| !(b.find)(None).is_empty()).collect()
}

/// The only device of its kind.
fn one(backend: &dyn Backend, preferred: bool) -> Found {
    let memory = backend.available_memory().map(|m| ("memory", format!("{} MiB available", m >> 20)));
    Found { name: backend.describe(), preferred, details: memory.into_iter().collect() }
}

fn find_gpus(cache: Option<&Cache>) -> Vec<Found> {
    let found = |a: &Adapter| Found {
        name: a.describe(),
        preferred: a.is_hardware(),
        details: a.details().into_iter().chain(a.known(cache)).collect(),
    };
    adapters().iter().map(found).collect()
}

fn open_gpu(options: &DeviceOptions) -> Result<Box<dyn Backend>, Error> {
    let cache = options.cache.clone();
    let how = GpuOptions { strict: options.strict, cache, tuning: options.tuning, ..GpuOptions::default() };
    let gpu = Gpu::new(options.gpu.as_deref(), how)
        .map_err(|e| Error::new(Kind::Usage, format!("{e}; `nibble devices` lists what there is")))?;
    Ok(Box::new(gpu))
}

fn open_cpu(options: &DeviceOptions) -> Result<Box<dyn Backend>, Error> {
    let isa = match options.isa.as_deref() {
        Some(name) => Some(Isa::by_name(name).ok_or_else(|| {
            let known = Isa::available().iter().map(|i| i.name()).collect::<Vec<_>>().join(", ");
            Error::new(
                Kind::Usage,
                format!("instruction set: expected one that this processor has ({known}), found `{name}`"),
            )
        })?),
        None => None,
    };
    Ok(Box::new(Cpu::new(CpuOptions { threads: options.threads, isa, ..CpuOptions::default() })))
}

/// The CPU.
pub(crate) fn cpu(options: &DeviceOptions) -> Result<Box<dyn Backend>, Error> {
    open_cpu(options)
}

/// The kinds of device that `name` may mean, the preferred one first: for `auto` those that this machine has and that
/// are meant for it.
pub(crate) fn candidates(name: &str) -> Result<Vec<&'static BackendEntry>, Error> {
    if name == "auto" {
        return Ok(BACKENDS.iter().filter(|b| (b.find)(None).iter().any(|found| found.preferred)).collect());
    }
    let known = || BACKENDS.iter().map(|b| b.name).collect::<Vec<_>>().join(", ");
    let entry = BACKENDS.iter().find(|b| b.name == name).ok_or_else(|| {
        Error::new(
            Kind::Usage,
            format!("device: expected auto, {}, found `{name}`, which this build has not", known()),
        )
    })?;
    Ok(vec![entry])
}
