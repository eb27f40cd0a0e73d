//! The device: instruction set, threads, and what it can run.

use crate::{
    ceiling::CpuCeiling,
    fuse::{self, Options},
    kernels::Isa,
    plan::CpuPlan,
    pool::Pool,
    program::Program,
    sizes::Sizes,
};
use nibble_backend::{Backend, Ceiling, Device, Error, Limits, Memory, Plan};
use nibble_graph::{Graph, Op};
use std::sync::Arc;

/// How the CPU is used.
#[derive(Clone, Copy, Debug)]
pub struct CpuOptions {
    /// Threads, the caller included; as many as the process may use at once if not said.
    pub threads: Option<usize>,
    /// The instruction set; the fastest there is if not said.
    pub isa: Option<Isa>,
    /// Whether ops are fused. Off for comparisons alone: it changes speed and memory, never a result.
    pub fuse: bool,
    /// Whether reserved memory is asked for in huge pages.
    pub huge_pages: bool,
}

impl Default for CpuOptions {
    fn default() -> Self {
        Self { threads: None, isa: None, fuse: true, huge_pages: true }
    }
}

/// The processor as a device. Its plans share one pool of threads.
pub struct Cpu {
    options: CpuOptions,
    isa: Isa,
    pool: Arc<Pool>,
}

impl Cpu {
    /// Starts the threads.
    pub fn new(options: CpuOptions) -> Self {
        let available = || std::thread::available_parallelism().map_or(1, |n| n.get());
        let pool = Arc::new(Pool::new(options.threads.unwrap_or_else(available)));
        Self { options, isa: options.isa.unwrap_or_else(Isa::detect), pool }
    }

    /// The instruction set in use.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Threads in use.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    pub(crate) fn options(&self) -> &CpuOptions {
        &self.options
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    fn prepare(&self, graph: &Graph, limits: &Limits) -> Result<(Program, Sizes), Error> {
        let expanded = graph.expanded(|op| self.runs(op)).map_err(|e| self.unsupported(&e.to_string()))?;
        let options = Options {
            isa: self.isa,
            activations: limits.activations,
            fuse: self.options.fuse,
            check: limits.check_finite,
        };
        let program = fuse::program(&expanded, options);
        let sizes = Sizes::new(graph, &program, limits, (self.isa(), self.threads()))?;
        Ok((program, sizes))
    }

    fn unsupported(&self, what: &str) -> Error {
        Error::Unsupported { device: self.describe(), what: what.into() }
    }
}

impl Backend for Cpu {
    fn device(&self) -> Device {
        Device {
            name: processor_name().unwrap_or_else(|| std::env::consts::ARCH.into()),
            instructions: self.isa.to_string(),
            threads: self.threads(),
        }
    }

    fn ceiling(&self) -> Result<Option<Box<dyn Ceiling>>, Error> {
        Ok(Some(Box::new(CpuCeiling::new(self.isa, Arc::clone(&self.pool))?)))
    }

    fn available_memory(&self) -> Option<u64> {
        crate::available_memory()
    }

    fn runs(&self, _op: &Op) -> bool {
        true
    }

    fn memory(&self, graph: &Graph, limits: &Limits) -> Result<Memory, Error> {
        Ok(self.prepare(graph, limits)?.1.memory)
    }

    fn compile(&self, graph: &Graph, limits: &Limits) -> Result<Box<dyn Plan>, Error> {
        let (program, sizes) = self.prepare(graph, limits)?;
        Ok(Box::new(CpuPlan::new(self, graph, limits, program, sizes)?))
    }
}

/// What the system calls the processor.
fn processor_name() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("model name"))?;
    Some(line.trim_start_matches([' ', '\t', ':']).to_string())
}
