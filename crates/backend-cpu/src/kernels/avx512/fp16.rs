//! Arithmetic in half precision: instructions of AVX512-FP16, as assembly for the reason that [`super::vbmi`] has.
//!
//! They come in only where [`Avx512::has_fp16`](crate::kernels::Avx512::has_fp16) was asked; on other processors, the
//! instructions would end the process and do nothing else.

use std::arch::asm;
use std::arch::x86_64::*;

/// Sums, rounded once.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn add(a: __m512i, b: __m512i) -> __m512i {
    let out;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vaddph {}, {}, {}", lateout(zmm_reg) out, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// Numbers to integers of 16 bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn to_integers(x: __m512i) -> __m512i {
    let out;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vcvtph2w {}, {}", lateout(zmm_reg) out, in(zmm_reg) x,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}
