//! What the machine can do at most: bare loops that benchmarks print beside their figures.

use super::Isa;
use std::hint::black_box;

/// Reads `bytes` once, as fast as one thread can.
pub fn read(isa: Isa, bytes: &[u8]) {
    let sum = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            unsafe { x86::read(bytes) }
        }
        _ => xor(bytes),
    };
    black_box(sum);
}

/// Multiplies and adds eight-bit integers in registers; returns how many products it made, or `None` where no such loop
/// is written for the instruction set.
pub fn multiply(isa: Isa, rounds: usize) -> Option<usize> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            black_box(unsafe { x86::multiply(rounds) });
            Some(rounds * 12 * 64)
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            Some(unsafe { super::neon::multiply_dot(rounds) })
        }
        #[cfg(target_arch = "aarch64")]
        Isa::NeonI8mm(_) => {
            // SAFETY: as above.
            Some(unsafe { super::neon::multiply_matrix(rounds) })
        }
        _ => None,
    }
}

#[inline(always)]
fn xor(bytes: &[u8]) -> u64 {
    let mut sums = [0u64; 64];
    for block in bytes.chunks_exact(512) {
        for (sum, eight) in sums.iter_mut().zip(block.chunks_exact(8)) {
            *sum ^= u64::from_le_bytes(*eight.first_chunk().expect("eight bytes"));
        }
    }
    sums.iter().fold(0, |a, b| a ^ b)
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;
    use std::hint::black_box;

    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn read(bytes: &[u8]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        for block in bytes.chunks_exact(512) {
            for (sum, part) in sums.iter_mut().zip(block.chunks_exact(64)) {
                // A prefetch may name any address.
                _mm_prefetch::<_MM_HINT_T0>(part.as_ptr().wrapping_add(2048).cast());
                // SAFETY: the slice covers the 64 bytes read, and `loadu` asks for no alignment.
                *sum = _mm512_xor_si512(*sum, unsafe { _mm512_loadu_si512(part.as_ptr().cast()) });
            }
        }
        let sum = sums.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_xor_si512(a, b));
        _mm512_reduce_add_epi64(sum) as u64
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    pub fn multiply(rounds: usize) -> i32 {
        let (a, b) = (black_box(_mm512_set1_epi8(3)), black_box(_mm512_set1_epi8(5)));
        let mut sums: [__m512i; 12] = std::array::from_fn(|i| _mm512_set1_epi32(i as i32));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        _mm512_reduce_add_epi32(sums.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi32(a, b)))
    }
}
