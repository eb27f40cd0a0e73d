//! The limits of the processor: every thread of the pool reads or multiplies as fast as its instructions can.

use crate::{
    buffer::Buffer,
    kernels::{Isa, limits},
    pool::Pool,
};
use nibble_backend::{Ceiling, Error, Numbers};
use std::{fs, sync::Arc};

/// The memory read is so many times the last cache.
const CACHES: usize = 4;

/// And at least and at most so much.
const BYTES: (usize, usize) = (64 << 20, 1 << 30);

/// Chunks of a region for each thread, so that one that starts late delays less.
const CHUNKS: usize = 8;

/// Rounds of multiplications in a chunk: some tenths of a millisecond.
const ROUNDS: usize = 50_000;

/// Loops over the threads of a pool.
pub struct CpuCeiling {
    isa: Isa,
    pool: Arc<Pool>,
    memory: Buffer,
}

impl CpuCeiling {
    /// Reserves and fills the memory that [`Ceiling::read`] reads.
    ///
    /// # Errors
    /// [`Error::Memory`] if there is not so much.
    pub fn new(isa: Isa, pool: Arc<Pool>) -> Result<Self, Error> {
        let cache = last_cache(pool.threads()).unwrap_or(BYTES.0);
        let bytes = cache.saturating_mul(CACHES).clamp(BYTES.0, BYTES.1);
        Ok(Self { isa, pool, memory: Buffer::new("the memory to measure bandwidth on", bytes, true)? })
    }
}

impl Ceiling for CpuCeiling {
    fn read(&mut self) -> u64 {
        let memory = self.memory.bytes();
        let mut team = self.pool.team(None);
        let part = memory.len().div_ceil(team.threads() * CHUNKS);
        team.run(memory.len().div_ceil(part), |chunk, _| {
            limits::read(self.isa, &memory[chunk * part..memory.len().min((chunk + 1) * part)]);
        });
        memory.len() as u64
    }

    fn multiply(&mut self, numbers: Numbers) -> Option<u64> {
        let multiply = match numbers {
            Numbers::Int8 => limits::multiply,
            Numbers::F32 => limits::multiply_floats,
        };
        let each = multiply(self.isa, 1)?;
        let mut team = self.pool.team(None);
        let chunks = team.threads() * CHUNKS;
        team.run(chunks, |_, _| _ = multiply(self.isa, ROUNDS));
        Some((each * ROUNDS * chunks) as u64)
    }
}

/// Bytes of the last caches that so many threads can have, where the system tells.
fn last_cache(threads: usize) -> Option<usize> {
    let of = |index: u32| {
        let read =
            |name| fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}")).ok();
        let (size, sharers) = (read("size")?, read("shared_cpu_list")?);
        let bytes = size.trim().strip_suffix('K')?.parse::<usize>().ok()?.checked_mul(1024)?;
        Some(bytes.saturating_mul(threads.div_ceil(count(&sharers)?)))
    };
    (0..8).filter_map(of).max()
}

/// Processors in a list such as `0-3,8`.
fn count(list: &str) -> Option<usize> {
    let one = |range: &str| match range.split_once('-') {
        Some((first, last)) => last.parse::<usize>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1),
        None => range.parse::<usize>().ok().map(|_| 1),
    };
    list.trim().split(',').map(one).sum::<Option<usize>>().filter(|&n| n > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_instruction_set_reads_all_of_the_memory_and_multiplies() {
        for isa in Isa::available() {
            let mut ceiling = CpuCeiling::new(isa, Arc::new(Pool::new(2))).unwrap();
            assert_eq!(ceiling.read(), ceiling.memory.len() as u64);
            assert!(ceiling.read() >= BYTES.0 as u64);
            for numbers in [Numbers::Int8, Numbers::F32] {
                let products = ceiling.multiply(numbers);
                assert!(products.is_some_and(|n| n > 100_000), "{isa} {numbers:?}: {products:?}");
            }
        }
    }

    #[test]
    fn processors_are_counted_in_ranges() {
        assert_eq!((count("0-3,8\n"), count("5"), count("0-1,4-7")), (Some(5), Some(1), Some(6)));
        assert_eq!((count(""), count("3-1"), count("a")), (None, None, None));
    }
}
