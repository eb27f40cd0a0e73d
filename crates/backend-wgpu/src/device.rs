//! An open device: buffers, pipelines, errors that it reports.

use crate::{
    adapters::{Adapter, COHERENT, Caps, REQUIRED},
    plan::Import,
    shader::{Access, Shader},
};
use nibble_backend::Error;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};
use wgpu::{
    BindGroupLayoutDescriptor, BindGroupLayoutEntry, BindingType, BufferBindingType, BufferUsages,
    ComputePipelineDescriptor, DeviceDescriptor, Features, PipelineCompilationOptions,
    PipelineLayoutDescriptor, PollType, ShaderModuleDescriptor, ShaderRuntimeChecks, ShaderSource,
    ShaderStages,
};

/// A compiled kernel.
pub struct Pipeline {
    /// What runs.
    pub pipeline: wgpu::ComputePipeline,
    /// How its buffers are bound.
    pub layout: wgpu::BindGroupLayout,
}

/// A device with its pipelines. Plans share it.
pub struct Device {
    /// Its name.
    pub name: String,
    /// Interface and driver.
    pub driver: String,
    /// What kernels may use.
    pub caps: Caps,
    /// Bytes of its own memory, if it says.
    pub memory: Option<u64>,
    pub(crate) device: wgpu::Device,
    pub(crate) queue: wgpu::Queue,
    /// How it takes memory of the host in place, if it can.
    pub(crate) import: Option<Import>,
    pipelines: Mutex<HashMap<Shader, Arc<Pipeline>>>,
    failure: Arc<Mutex<Option<String>>>,
    buffers: AtomicU64,
    /// Text of kernels that becomes another one when they are compiled: a driver that makes wrong code.
    #[cfg(test)]
    pub(crate) spoilt: Mutex<Vec<[&'static str; 2]>>,
}

impl Device {
    /// Opens an adapter.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver refuses.
    pub fn open(adapter: &Adapter) -> Result<Self, Error> {
        let caps = adapter.caps();
        // A clock is of use to traces; nothing else needs it.
        let mut features = REQUIRED | adapter.inner.features() & Features::TIMESTAMP_QUERY;
        if caps.half {
            features |= Features::SHADER_F16;
        }
        if caps.coherent {
            features |= COHERENT;
        }
        let experimental = if caps.matrix.is_some() {
            features |= Features::EXPERIMENTAL_COOPERATIVE_MATRIX;
            // SAFETY: matrices are used as the documentation says: by whole subgroups, in shapes that the adapter lists.
            unsafe { wgpu::ExperimentalFeatures::enabled() }
        } else {
            wgpu::ExperimentalFeatures::disabled()
        };
        let descriptor = DeviceDescriptor {
            label: Some("nibble"),
            required_features: features,
            required_limits: adapter.inner.limits(),
            experimental_features: experimental,
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (name, driver) = (adapter.name().to_string(), adapter.driver());
        let failed = |what: String| Error::Device { device: name.clone(), what };
        let (device, queue) = pollster::block_on(adapter.inner.request_device(&descriptor))
            .map_err(|e| failed(e.to_string()))?;
        let failure = Arc::new(Mutex::new(None));
        let keep = |failure: &Arc<Mutex<Option<String>>>| {
            let failure = Arc::clone(failure);
            move |what: String| {
                failure.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(what);
            }
        };
        let (on_error, on_lost) = (keep(&failure), keep(&failure));
        device.on_uncaptured_error(Arc::new(move |e: wgpu::Error| on_error(e.to_string())));
        device.set_device_lost_callback(move |_, what| {
            on_lost(format!("the device was lost, and everything on it: {what}"));
        });
        let memory = adapter.memory();
        Ok(Self {
            name,
            driver,
            caps,
            memory,
            import: import(&device),
            device,
            queue,
            pipelines: Mutex::default(),
            failure,
            buffers: AtomicU64::new(0),
            #[cfg(test)]
            spoilt: Mutex::default(),
        })
    }

    /// What went wrong since the device was opened.
    ///
    /// # Errors
    /// [`Error::Device`] with the first thing that the device reported.
    pub fn check(&self) -> Result<(), Error> {
        match &*self.failure.lock().unwrap_or_else(|e| e.into_inner()) {
            Some(what) => Err(self.error(what.clone())),
            None => Ok(()),
        }
    }

    /// [`Self::check`], after asking the device whether it is still there.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_now(&self) -> Result<(), Error> {
        self.device.poll(PollType::Poll).map_err(|e| self.error(e.to_string()))?;
        self.check()
    }

    /// An error of this device.
    pub fn error(&self, what: impl Into<String>) -> Error {
        Error::Device { device: self.name.clone(), what: what.into() }
    }

    /// Waits until everything that was submitted is done.
    ///
    /// # Errors
    /// [`Error::Device`] if something failed.
    pub fn wait(&self) -> Result<(), Error> {
        self.device.poll(PollType::wait_indefinitely()).map_err(|e| self.error(e.to_string()))?;
        self.check()
    }

    /// A buffer for kernels.
    ///
    /// # Errors
    /// [`Error::Memory`] if the device has not so much.
    pub fn buffer(&self, what: &str, bytes: u64) -> Result<wgpu::Buffer, Error> {
        self.buffer_for(what, bytes, BufferUsages::STORAGE | BufferUsages::COPY_DST | BufferUsages::COPY_SRC)
    }

    /// A buffer for that use.
    ///
    /// # Errors
    /// [`Error::Memory`] if the device has not so much.
    pub fn buffer_for(&self, what: &str, bytes: u64, usage: BufferUsages) -> Result<wgpu::Buffer, Error> {
        // Bindings are never empty, and end with a whole vector.
        let size = bytes.max(1).next_multiple_of(16);
        let refuse = || Error::Memory { what: what.into(), needed: bytes, available: 0 };
        if size > self.device.limits().max_buffer_size {
            let available = self.device.limits().max_buffer_size;
            return Err(Error::Memory { what: what.into(), needed: bytes, available });
        }
        self.buffers.fetch_add(1, Ordering::Relaxed);
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let descriptor = wgpu::BufferDescriptor { label: Some(what), size, usage, mapped_at_creation: false };
        let buffer = self.device.create_buffer(&descriptor);
        match pollster::block_on(memory.pop()) {
            Some(_) => Err(refuse()),
            None => Ok(buffer),
        }
    }

    /// Buffers made so far.
    pub fn buffers_made(&self) -> u64 {
        self.buffers.load(Ordering::Relaxed)
    }

    /// Bytes of memory in use by everything on this device, what wgpu takes for itself too, if its driver's layer says.
    pub fn memory_in_use(&self) -> Option<u64> {
        self.device.generate_allocator_report().map(|report| report.total_allocated_bytes)
    }

    /// The pipeline of a kernel, compiled once.
    ///
    /// # Errors
    /// [`Error::Device`] if the driver refuses it.
    pub fn pipeline(&self, shader: &Shader) -> Result<Arc<Pipeline>, Error> {
        #[cfg(test)]
        let shader = &self.spoilt.lock().unwrap().iter().fold(shader.clone(), |mut shader, [from, to]| {
            shader.text = shader.text.replace(from, to);
            shader
        });
        let lock = || self.pipelines.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(found) = lock().get(shader) {
            return Ok(Arc::clone(found));
        }
        let made = Arc::new(self.compile(shader)?);
        Ok(Arc::clone(lock().entry(shader.clone()).or_insert(made)))
    }

    fn compile(&self, shader: &Shader) -> Result<Pipeline, Error> {
        let scope = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let descriptor = ShaderModuleDescriptor {
            label: Some(&shader.label),
            source: ShaderSource::Wgsl(shader.text.as_str().into()),
        };
        // SAFETY: kernels stay inside their buffers by construction, and their loops end; the tests run each of them
        // with checks too.
        let module =
            unsafe { self.device.create_shader_module_trusted(descriptor, ShaderRuntimeChecks::unchecked()) };
        let entries: Vec<_> = shader
            .access
            .iter()
            .enumerate()
            .map(|(i, access)| BindGroupLayoutEntry {
                binding: i as u32,
                visibility: ShaderStages::COMPUTE,
                ty: BindingType::Buffer {
                    ty: BufferBindingType::Storage { read_only: *access == Access::Read },
                    has_dynamic_offset: false,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let layout = self
            .device
            .create_bind_group_layout(&BindGroupLayoutDescriptor { label: None, entries: &entries });
        let pipeline_layout = self.device.create_pipeline_layout(&PipelineLayoutDescriptor {
            label: None,
            bind_group_layouts: &[Some(&layout)],
            immediate_size: shader.words as u32 * 4,
        });
        let pipeline = self.device.create_compute_pipeline(&ComputePipelineDescriptor {
            label: Some(&shader.label),
            layout: Some(&pipeline_layout),
            module: &module,
            entry_point: Some("main"),
            compilation_options: PipelineCompilationOptions {
                zero_initialize_workgroup_memory: false,
                ..PipelineCompilationOptions::default()
            },
            cache: None,
        });
        match pollster::block_on(scope.pop()) {
            Some(e) => Err(self.error(format!("kernel `{}`: {e}", shader.label))),
            None => Ok(Pipeline { pipeline, layout }),
        }
    }
}

/// How a device takes memory of the host in place: on Apple's, whose memory is the host's.
fn import(device: &wgpu::Device) -> Option<Import> {
    #[cfg(target_vendor = "apple")]
    return crate::metal::is_unified(device).then_some(crate::metal::import);
    #[cfg(not(target_vendor = "apple"))]
    {
        let _ = device;
        None
    }
}
