//! What GPUs there are, and what they can do.

use crate::selfcheck::{Cache, Store};
use std::sync::OnceLock;
use wgpu::{Backends, DeviceType, Features, InstanceDescriptor, InstanceFlags};

/// What kernels may use on a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Invocations in a subgroup: least and most.
    pub subgroup: [u32; 2],
    /// Side of the cooperative matrices (f16 with f32 sums) that it has; only where the size of subgroups is fixed.
    pub matrix: Option<u32>,
    /// Whether it has arithmetic in half precision.
    pub half: bool,
    /// Whether these load from vectors in workgroup memory: everywhere but on Metal.
    pub vectors: bool,
    /// Whether it multiplies four bytes in one instruction.
    pub int8_dot: bool,
    /// The longest buffer that a kernel can see.
    pub binding: u64,
    /// Bytes of workgroup memory.
    pub workgroup: u32,
    /// Whether workgroups see what others have left behind a barrier: not on Metal, whose barriers are for one workgroup.
    pub coherent: bool,
    /// Whether it is a processor that plays a GPU.
    pub software: bool,
}

#[cfg(test)]
impl Caps {
    /// Those of a card for servers.
    pub fn of_a_server() -> Self {
        Self {
            subgroup: [32; 2],
            matrix: Some(16),
            half: true,
            vectors: true,
            int8_dot: true,
            binding: 1 << 30,
            workgroup: 48 << 10,
            coherent: true,
            software: false,
        }
    }
}

/// A GPU, or something that behaves like one.
pub struct Adapter {
    pub(crate) inner: wgpu::Adapter,
    info: wgpu::AdapterInfo,
}

/// Features without which nothing runs.
pub(crate) const REQUIRED: Features = Features::IMMEDIATES.union(Features::SUBGROUP);

/// What kernels need whose workgroups wait for nobody but read what others have left.
pub(crate) const COHERENT: Features = Features::MEMORY_DECORATION_COHERENT;

/// Everything that can run graphs, real GPUs first. An empty list if the system has no driver at all.
pub fn adapters() -> Vec<Adapter> {
    // One for the whole process: some drivers give none after the first one is gone.
    static INSTANCE: OnceLock<wgpu::Instance> = OnceLock::new();
    let instance = INSTANCE.get_or_init(|| {
        // No validation layers and no validation of indirect dispatches: both cost a dispatch each.
        let mut descriptor = InstanceDescriptor::new_without_display_handle();
        descriptor.backends = Backends::VULKAN | Backends::METAL;
        descriptor.flags = InstanceFlags::empty();
        wgpu::Instance::new(descriptor)
    });
    let found = pollster::block_on(instance.enumerate_adapters(Backends::VULKAN | Backends::METAL));
    let mut all: Vec<_> = found
        .into_iter()
        .map(|inner| Adapter { info: inner.get_info(), inner })
        .filter(|a| a.inner.features().contains(REQUIRED))
        .collect();
    all.sort_by_key(|a| match a.info.device_type {
        DeviceType::DiscreteGpu => 0,
        DeviceType::IntegratedGpu => 1,
        DeviceType::VirtualGpu => 2,
        DeviceType::Other => 3,
        DeviceType::Cpu => 4,
    });
    all
}

impl Adapter {
    /// Its name: `Apple M4 Pro`.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Whether it is real: not a processor that plays a GPU.
    pub fn is_hardware(&self) -> bool {
        self.info.device_type != DeviceType::Cpu
    }

    /// Interface and driver: `Vulkan, NVIDIA 580.159.04`.
    pub fn driver(&self) -> String {
        let driver = format!("{} {}", self.info.driver, self.info.driver_info);
        format!("{}, {}", self.info.backend, driver.trim())
    }

    /// Name, interface and driver: `NVIDIA H200 (Vulkan, NVIDIA 580.159.04)`.
    pub fn describe(&self) -> String {
        format!("{} ({})", self.info.name, self.driver())
    }

    /// What kernels may use on it.
    pub fn caps(&self) -> Caps {
        let (features, limits) = (self.inner.features(), self.inner.limits());
        let subgroup = [self.info.subgroup_min_size, self.info.subgroup_max_size];
        let fixed = subgroup[0] == subgroup[1];
        // Mesa's software crashes on matrices when its vectors are not the default ones.
        let broken = !self.is_hardware() && subgroup[0] != 8;
        let can_multiply = features
            .contains(Features::EXPERIMENTAL_COOPERATIVE_MATRIX | Features::SHADER_F16)
            && fixed
            && !broken;
        let sides = self.inner.cooperative_matrix_properties();
        let matrix = [16, 8].into_iter().find(|&side| {
            can_multiply
                && sides.iter().any(|p| {
                    [p.m_size, p.n_size, p.k_size] == [side; 3]
                        && p.ab_type == wgpu::CooperativeScalarType::F16
                        && p.cr_type == wgpu::CooperativeScalarType::F32
                })
        });
        Caps {
            subgroup,
            matrix,
            half: features.contains(Features::SHADER_F16),
            vectors: self.info.backend != wgpu::Backend::Metal,
            int8_dot: self.info.backend == wgpu::Backend::Vulkan,
            binding: limits.max_storage_buffer_binding_size.min(limits.max_buffer_size).min(1 << 30),
            workgroup: limits.max_compute_workgroup_storage_size,
            coherent: self.info.backend == wgpu::Backend::Vulkan && features.contains(COHERENT),
            software: !self.is_hardware(),
        }
    }

    /// Bytes of its own memory, if it says.
    pub fn memory(&self) -> Option<u64> {
        memory(&self.inner)
    }

    /// What earlier starts found out about its kernels, a line each.
    pub fn known(&self, cache: Option<&Cache>) -> Vec<(&'static str, String)> {
        Store::open(cache, self.name(), &self.driver()).details()
    }

    /// Everything of interest, a line each.
    pub fn details(&self) -> Vec<(&'static str, String)> {
        let (caps, limits) = (self.caps(), self.inner.limits());
        let sides = self.inner.cooperative_matrix_properties();
        let shapes: Vec<_> = sides
            .iter()
            .map(|p| format!("{}x{}x{} {:?}/{:?}", p.m_size, p.n_size, p.k_size, p.ab_type, p.cr_type))
            .collect();
        let yes = |b: bool| if b { "yes" } else { "no" }.to_string();
        vec![
            ("device", self.describe()),
            ("hardware", yes(self.is_hardware())),
            ("memory", self.memory().map_or("unknown".into(), |m| format!("{} MiB", m >> 20))),
            ("subgroups", format!("{} to {} invocations", caps.subgroup[0], caps.subgroup[1])),
            ("matrices", if shapes.is_empty() { "none".into() } else { shapes.join(", ") }),
            (
                "matrices in use",
                caps.matrix.map_or("none: register tiles".into(), |s| format!("{s}x{s}x{s}")),
            ),
            ("half precision", yes(caps.half)),
            ("8-bit products", yes(caps.int8_dot)),
            ("longest binding", format!("{} MiB", limits.max_storage_buffer_binding_size >> 20)),
            ("longest buffer", format!("{} MiB", limits.max_buffer_size >> 20)),
            ("workgroup memory", format!("{} KiB", caps.workgroup >> 10)),
        ]
    }
}

/// The largest heap of memory that is the device's own.
fn memory(adapter: &wgpu::Adapter) -> Option<u64> {
    // SAFETY: the handle is only read, and not kept.
    #[cfg(not(target_vendor = "apple"))]
    unsafe {
        let hal = adapter.as_hal::<wgpu::hal::api::Vulkan>()?;
        let instance = hal.shared_instance().raw_instance();
        let properties = instance.get_physical_device_memory_properties(hal.raw_physical_device());
        let heaps = &properties.memory_heaps[..properties.memory_heap_count as usize];
        // Bit 0 of the flags: local to the device.
        heaps.iter().filter(|h| h.flags.as_raw() & 1 == 1).map(|h| h.size).max()
    }
    #[cfg(target_vendor = "apple")]
    {
        let _ = adapter;
        None
    }
}
