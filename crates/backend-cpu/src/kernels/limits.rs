//! What the machine can do at most: bare loops that benchmarks print beside their figures.

use super::Isa;
use std::hint::black_box;

/// Sums in flight: enough for two pipes of four or five cycles.
#[cfg(target_arch = "x86_64")]
const SUMS: usize = 12;

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
/// is written.
pub fn multiply(isa: Isa, rounds: usize) -> Option<usize> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            black_box(unsafe { x86::multiply(rounds) });
            Some(rounds * SUMS * 64)
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            // SAFETY: as above.
            black_box(unsafe { x86::multiply_pairs(rounds) });
            Some(rounds * SUMS * 32)
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
        _ => {
            let (a, b) = (black_box([3i8; 16]), black_box([5i8; 16]));
            let mut sums = [0i32; 16];
            for _ in 0..rounds {
                for ((sum, a), b) in sums.iter_mut().zip(black_box(a)).zip(b) {
                    *sum = sum.wrapping_add(i32::from(a) * i32::from(b));
                }
            }
            black_box(sums);
            Some(rounds * 16)
        }
    }
}

/// Multiplies and adds 32-bit floats in registers; returns how many products it made.
pub fn multiply_floats(isa: Isa, rounds: usize) -> Option<usize> {
    match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => {
            // SAFETY: the value of `isa` proves that the instructions were detected.
            black_box(unsafe { x86::multiply_floats_512(rounds) });
            Some(rounds * SUMS * 16)
        }
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => {
            // SAFETY: as above.
            black_box(unsafe { x86::multiply_floats_256(rounds) });
            Some(rounds * SUMS * 8)
        }
        #[cfg(target_arch = "aarch64")]
        Isa::Neon(_) | Isa::NeonI8mm(_) => {
            // SAFETY: as above.
            Some(unsafe { super::neon::multiply_floats(rounds) })
        }
        _ => {
            let (a, b) = (black_box([0.5f32; 16]), black_box([0.25f32; 16]));
            let mut sums = [0f32; 16];
            for _ in 0..rounds {
                for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
                    *sum = *sum * a + b;
                }
            }
            black_box(sums);
            Some(rounds * 16)
        }
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
    use super::SUMS;
    use std::arch::x86_64::*;
    use std::hint::black_box;

    /// Four streams, as kernels have them: one is followed less far ahead by the hardware.
    #[target_feature(enable = "avx512f,avx512bw")]
    pub fn read(bytes: &[u8]) -> u64 {
        let mut sums = [_mm512_setzero_si512(); 8];
        let quarter = bytes.len() / 4;
        let streams = [0, 1, 2, 3].map(|i| &bytes[i * quarter..(i + 1) * quarter]);
        for at in (0..quarter.saturating_sub(127)).step_by(128) {
            for (i, sum) in sums.iter_mut().enumerate() {
                let part = &streams[i / 2][at + i % 2 * 64..][..64];
                // A prefetch may name any address.
                _mm_prefetch::<_MM_HINT_T0>(part.as_ptr().wrapping_add(1024).cast());
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
        let mut sums: [__m512i; SUMS] = std::array::from_fn(|i| _mm512_set1_epi32(i as i32));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm512_dpbusd_epi32(*sum, a, b);
            }
        }
        _mm512_reduce_add_epi32(sums.into_iter().fold(_mm512_setzero_si512(), |a, b| _mm512_add_epi32(a, b)))
    }

    /// Sums of 16 bits, as kernels keep them over some products. Each sum is an input of its next products, so that no
    /// product can be made once for all rounds.
    #[target_feature(enable = "avx2")]
    pub fn multiply_pairs(rounds: usize) -> i32 {
        let b = black_box(_mm256_set1_epi8(1));
        let mut sums: [__m256i; SUMS] = std::array::from_fn(|i| _mm256_set1_epi16(i as i16));
        for _ in 0..rounds {
            for sum in &mut sums {
                *sum = _mm256_add_epi16(*sum, _mm256_maddubs_epi16(*sum, b));
            }
        }
        let sum = sums.into_iter().fold(_mm256_setzero_si256(), |a, b| _mm256_add_epi16(a, b));
        _mm256_extract_epi32::<0>(sum)
    }

    macro_rules! multiply_floats {
        ($name:ident, $features:literal, $set:ident, $fma:ident, $add:ident, $first:ident, $vector:ident) => {
            #[target_feature(enable = $features)]
            pub fn $name(rounds: usize) -> f32 {
                // Each sum goes to 0.5 and stays there: no infinities, no denormal numbers.
                let (a, b) = (black_box($set(0.5)), black_box($set(0.25)));
                let mut sums: [$vector; SUMS] = std::array::from_fn(|i| $set(i as f32));
                for _ in 0..rounds {
                    for sum in &mut sums {
                        *sum = $fma(*sum, a, b);
                    }
                }
                $first(sums.into_iter().fold(b, |a, b| $add(a, b)))
            }
        };
    }

    multiply_floats!(
        multiply_floats_512,
        "avx512f",
        _mm512_set1_ps,
        _mm512_fmadd_ps,
        _mm512_add_ps,
        _mm512_cvtss_f32,
        __m512
    );
    multiply_floats!(
        multiply_floats_256,
        "avx2,fma",
        _mm256_set1_ps,
        _mm256_fmadd_ps,
        _mm256_add_ps,
        _mm256_cvtss_f32,
        __m256
    );
}
