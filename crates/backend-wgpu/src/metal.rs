//! The bridge to Metal: memory of the host as a buffer of the device, without a copy.

use crate::plan::Window;
use block2::RcBlock;
use nibble_tensor::Bytes;
use objc2_metal::{MTLDevice as _, MTLResourceOptions};
use std::{ffi::c_void, ptr::NonNull};
use wgpu::hal::{api::Metal, metal};

/// Whether the device's memory is the host's.
pub fn is_unified(device: &wgpu::Device) -> bool {
    // SAFETY: the handle is only asked a question, and not kept.
    unsafe { device.as_hal::<Metal>() }.is_some_and(|device| device.raw_device().hasUnifiedMemory())
}

/// A buffer that is the pages around `bytes`, for reading alone.
pub fn import(device: &wgpu::Device, bytes: Bytes, window: Window) -> Option<wgpu::Buffer> {
    let pages = NonNull::new(window.start as *mut c_void)?;
    // Metal lets go of the block when it is done with the buffer: until then the bytes stay, and with them their pages.
    let keep = RcBlock::new(move |_: NonNull<c_void>, _: usize| drop(bytes.clone()));
    let size = window.len as u64;
    let usage = wgpu::BufferUsages::STORAGE;
    let descriptor =
        wgpu::BufferDescriptor { label: Some("weights in place"), size, usage, mapped_at_creation: false };
    // SAFETY: each page holds one of the bytes, so all of them are there until the block goes, which may do so on any thread,
    // as bytes may. Kernels read them through bindings of the bytes alone: nothing writes (there is no use as a target of
    // copies, and weights are read-only in every kernel), and the memory is what it says from the start.
    unsafe {
        let raw =
            device.as_hal::<Metal>()?.raw_device().newBufferWithBytesNoCopy_length_options_deallocator(
                pages,
                window.len,
                MTLResourceOptions::StorageModeShared,
                Some(&keep),
            )?;
        let buffer = metal::Device::buffer_from_raw(raw, size);
        Some(device.create_buffer_from_hal::<Metal>(buffer, &descriptor))
    }
}
