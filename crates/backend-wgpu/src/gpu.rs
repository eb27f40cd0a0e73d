//! The device as a backend.

use crate::{
    adapters::{Adapter, adapters},
    build::Options,
    compile,
    device::Device,
    plan::{self, GpuPlan, Refused},
    selfcheck::Cache,
    tape::Tape,
    trust::Trust,
    tune::{Meter, Stopwatch, Tuning},
};
use nibble_backend::{Backend, Device as Words, Error, Limits, Memory, Plan};
use nibble_graph::{Graph, Op};
use std::sync::{Arc, Mutex, MutexGuard};

/// How the GPU is used.
#[derive(Clone, Debug, Default)]
pub struct GpuOptions {
    /// Whether a row's result may not depend on the other rows of a step. Slower for many rows.
    pub strict: bool,
    /// Whether every op is a call of its own. Slower; for tests.
    pub apart: bool,
    /// Where it is kept which kernels are right on which device; without, every start tries them.
    pub cache: Option<Cache>,
    /// Whether a wrong kernel is an error rather than left out with a warning; for tests.
    pub exacting: bool,
    /// Whether kernels are measured, to run in the way that is fastest on the device.
    pub tuning: Tuning,
}

/// A GPU. Its plans share one device.
pub struct Gpu {
    pub(crate) device: Arc<Device>,
    options: GpuOptions,
    trust: Mutex<Trust>,
}

impl Gpu {
    /// Opens the adapter whose name contains `name` (in any case), or the first one.
    ///
    /// # Errors
    /// [`Error::Device`] if there is none, or its driver refuses.
    pub fn new(name: Option<&str>, options: GpuOptions) -> Result<Self, Error> {
        let all = adapters();
        let wanted = name.map(str::to_lowercase);
        let matches = |a: &&Adapter| wanted.as_ref().is_none_or(|w| a.name().to_lowercase().contains(w));
        match all.iter().find(matches) {
            Some(adapter) => Self::open(adapter, options),
            None => {
                let found: Vec<_> = all.iter().map(Adapter::name).collect();
                let found = if found.is_empty() { "none".into() } else { found.join(", ") };
                let what = format!("no such GPU; found: {found}");
                Err(Error::Device { device: name.unwrap_or("gpu").into(), what })
            }
        }
    }

    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::Device`] if its driver refuses.
    pub fn open(adapter: &Adapter, options: GpuOptions) -> Result<Self, Error> {
        Ok(Self::on(Arc::new(Device::open(adapter)?), options, Box::new(Stopwatch::default())))
    }

    pub(crate) fn on(device: Arc<Device>, options: GpuOptions, meter: Box<dyn Meter>) -> Self {
        // Drivers fuse a multiplication and an addition in one kernel and not in another.
        let tuning = if options.strict { Tuning::Off } else { options.tuning };
        let trust = Trust::new(options.cache.as_ref(), &device, tuning, meter);
        let trust = Mutex::new(trust);
        Self { device, options, trust }
    }

    /// Kernels that were tried since the device was opened: those that earlier starts found right are not among them.
    pub fn tried(&self) -> usize {
        self.trust().tried()
    }

    #[cfg(test)]
    pub(crate) fn into_device(self) -> Arc<Device> {
        self.device
    }

    #[cfg(test)]
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    pub(crate) fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The tape, of kernels that are right.
    fn trusted(&self, graph: &Graph, limits: &Limits, wide: &[&'static str]) -> Result<Tape, Error> {
        loop {
            let tape = self.tape(graph, limits, wide)?;
            let mut trust = self.trust();
            let settled = trust.settle(&self.device, &tape)? && !trust.tune(&self.device, &tape)?;
            if let (true, Some(warning)) = (self.options.exacting, trust.warnings().first()) {
                return Err(self.device.error(warning.clone()));
            }
            if settled {
                return Ok(tape);
            }
        }
    }

    pub(crate) fn tape(&self, graph: &Graph, limits: &Limits, wide: &[&'static str]) -> Result<Tape, Error> {
        let trust = self.trust();
        let options = Options {
            strict: self.options.strict,
            fuse: !self.options.apart && !limits.check_finite,
            wide,
            wrong: trust.wrong(),
            plain: trust.plain(),
            tuned: trust.tuned().0,
            tune: trust.tuned().1,
            ..Options::new(&self.device.caps, limits)
        };
        compile::tape(graph, options, &self.device.name)
    }
}

impl Backend for Gpu {
    fn device(&self) -> Words {
        Words { name: self.device.name.clone(), instructions: self.device.driver.clone(), threads: 1 }
    }

    fn describe(&self) -> String {
        format!("{} ({})", self.device.name, self.device.driver)
    }

    fn available_memory(&self) -> Option<u64> {
        self.device.memory
    }

    fn prompt_rows(&self) -> usize {
        // Fewer rows make too few tiles for all of a large GPU.
        if self.device.caps.software { 512 } else { 2048 }
    }

    fn runs(&self, _op: &Op) -> bool {
        true
    }

    fn memory(&self, graph: &Graph, limits: &Limits) -> Result<Memory, Error> {
        let tape = self.tape(graph, limits, &[])?;
        let (places, sizes) = tape.share();
        let lent = plan::lent(&self.device, graph, &tape);
        Ok(plan::memory(&tape, &sizes, &places, plan::staging_bytes(&tape, limits), &lent))
    }

    fn prepare(&self, graph: &Graph, limits: &Limits) -> Result<Vec<String>, Error> {
        self.device.check_now()?;
        self.trusted(graph, limits, &[])?;
        Ok(self.trust().take_warnings())
    }

    fn compile(&self, graph: &Graph, limits: &Limits) -> Result<Box<dyn Plan>, Error> {
        self.device.check_now()?;
        let mut wide = vec![];
        loop {
            let tape = self.trusted(graph, limits, &wide)?;
            match GpuPlan::new(&self.device, graph, limits, tape) {
                Ok(plan) => return Ok(Box::new(plan)),
                Err(Refused::Error(error)) => return Err(error),
                Err(Refused::Wide(codec)) => wide.push(codec),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::common;
    use nibble_testkit::ops::{MOST_ROWS, graphs, limits, run_plan, run_two_tokens};

    #[test]
    fn a_lost_device_is_an_error_and_the_next_one_works() {
        let Some(gpu) = common::gpu(GpuOptions::default()) else { return };
        let (name, graph) = graphs().swap_remove(0);
        let limits = Limits { check_finite: false, ..limits(MOST_ROWS) };
        let mut plan = gpu.compile(&graph, &limits).unwrap();
        let expected = run_plan(&mut *plan, &graph, [2, 1], 1);
        gpu.device.device.destroy();
        let results =
            [run_two_tokens(&mut *plan), plan.copy_page(0, 1), gpu.compile(&graph, &limits).map(drop)];
        for (i, result) in results.into_iter().enumerate() {
            let error = result.expect_err(["a step", "a copy", "a plan"][i]);
            assert!(matches!(error, Error::Device { .. }), "{name}: {error}");
            assert!(error.to_string().contains("lost"), "{name}: {error}");
        }
        let next = common::gpu(GpuOptions::default()).expect("it was there before");
        let mut plan = next.compile(&graph, &limits).unwrap();
        assert_eq!(run_plan(&mut *plan, &graph, [2, 1], 1), expected);
    }
}
