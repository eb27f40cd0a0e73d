//! Memory reserved once: zeroed, aligned to pages, touched before use so that no step meets a page fault.

use memmap2::MmapMut;
use nibble_backend::Error;

const PAGE: usize = 4096;

/// `f32`s and bytes that live as long as a plan.
pub struct Buffer {
    map: Option<MmapMut>,
    bytes: usize,
}

impl Buffer {
    /// Reserves `bytes` for `what`, in huge pages where the system has them and `huge` is set.
    ///
    /// # Errors
    /// [`Error::Memory`] if it does not fit into what the system has.
    pub fn new(what: &str, bytes: usize, huge: bool) -> Result<Self, Error> {
        if bytes == 0 {
            return Ok(Self { map: None, bytes });
        }
        let refuse = |available| Error::Memory { what: what.into(), needed: bytes as u64, available };
        if let Some(available) = available_memory().filter(|&a| a < bytes as u64) {
            return Err(refuse(available));
        }
        let mut map = MmapMut::map_anon(bytes).map_err(|_| refuse(0))?;
        #[cfg(target_os = "linux")]
        if huge {
            // A wish: without huge pages everything works the same.
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let _ = huge;
        for byte in map.iter_mut().step_by(PAGE) {
            // SAFETY: `byte` is a valid place; the write must not be optimized away, as it makes the page ours.
            unsafe { std::ptr::write_volatile(byte, 0) };
        }
        Ok(Self { map: Some(map), bytes })
    }

    /// Bytes reserved.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// All of it.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_deref().unwrap_or_default()
    }

    /// All of it, to write.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.as_deref_mut().unwrap_or_default()
    }

    /// The first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.map.as_mut().map_or(std::ptr::dangling_mut::<f32>().cast(), |m| m.as_mut_ptr())
    }
}

/// Bytes of memory that can be had without swapping, if the system says.
pub fn available_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_machine_has_is_refused_with_numbers() {
        let error = Buffer::new("the bank", 1 << 60, false).err().expect("no machine has an exabyte");
        assert!(error.to_string().starts_with("the bank needs 1152921504606846976 bytes"), "{error}");
    }

    #[test]
    fn a_new_buffer_is_zero() {
        let mut buffer = Buffer::new("test", 10_000, true).unwrap();
        let len = buffer.len();
        // SAFETY: the buffer holds `len` bytes and nobody else points into it.
        let bytes = unsafe { std::slice::from_raw_parts(buffer.as_mut_ptr(), len) };
        assert!(bytes.iter().all(|&b| b == 0));
    }
}
