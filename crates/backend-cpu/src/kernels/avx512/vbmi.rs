//! Permutations and affine maps of bytes: instructions of VBMI and GFNI.
//!
//! They are written as assembly because the compiler inlines no function that needs more than its caller, and the loops
//! of this folder are compiled for processors without them too. Only [`super::VBMI_KERNELS`] come here, which are not
//! picked on such processors; there, the instructions would end the process and do nothing else.

use super::bytes::Bytes;
use std::arch::asm;
use std::arch::x86_64::*;

/// 128 bytes: what one instruction looks up in.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Table(pub [Bytes; 2]);

impl Table {
    /// Zeros.
    pub const ZERO: Self = Self([Bytes([0; 64]); 2]);
}

/// Byte `index[i]` of the 128 bytes `a` and `b`, upper bits of the index aside.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn permute_two(a: __m512i, index: __m512i, b: __m512i) -> __m512i {
    let mut out = index;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vpermi2b {}, {}, {}", inout(zmm_reg) out, in(zmm_reg) a, in(zmm_reg) b,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// The same of a table.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn look_up(table: &Table, index: __m512i) -> __m512i {
    let mut out = index;
    let [a, b] = &table.0;
    // SAFETY: the instruction changes nothing but its first operand, and the reference covers the 64 bytes read.
    unsafe {
        asm!("vpermi2b {}, {}, zmmword ptr [{}]", inout(zmm_reg) out, in(zmm_reg) a.get(), in(reg) b,
            options(pure, readonly, nostack, preserves_flags));
    }
    out
}

/// Byte `index[i]` of 64, upper bits of the index aside.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn permute(index: __m512i, table: __m512i) -> __m512i {
    let out;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vpermb {}, {}, {}", lateout(zmm_reg) out, in(zmm_reg) index, in(zmm_reg) table,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// `into` with the upper half of what [`permute`] gives.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
pub fn permute_upper(mut into: __m512i, index: __m512i, table: __m512i) -> __m512i {
    let upper: u64 = !0 << 32;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vpermb {}{{{}}}, {}, {}", inout(zmm_reg) into, in(kreg) upper, in(zmm_reg) index, in(zmm_reg) table,
            options(pure, nomem, nostack, preserves_flags));
    }
    into
}

/// Eight bits from bit `at[i] % 64` on, around the end, of the 64 bits of `from` in which byte `i` lies.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn multishift(at: __m512i, from: __m512i) -> __m512i {
    let out;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vpmultishiftqb {}, {}, {}", lateout(zmm_reg) out, in(zmm_reg) at, in(zmm_reg) from,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// Each byte times a matrix of bits: row `i` of it, which makes bit `i`, is byte `7 - i` of the 64 bits at its place.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn affine(bytes: __m512i, matrix: __m512i) -> __m512i {
    let out;
    // SAFETY: the instruction changes nothing but its first operand.
    unsafe {
        asm!("vgf2p8affineqb {}, {}, {}, 0", lateout(zmm_reg) out, in(zmm_reg) bytes, in(zmm_reg) matrix,
            options(pure, nomem, nostack, preserves_flags));
    }
    out
}

/// 32 bytes, twice. (The compiler would rather load them once and move them across, which takes a port that is short.)
#[inline]
#[target_feature(enable = "avx512f")]
pub fn twice(bytes: &[u8; 32]) -> __m512i {
    let out;
    // SAFETY: the instruction changes nothing but its first operand, and the reference covers the 32 bytes read.
    unsafe {
        asm!("vbroadcasti64x4 {}, ymmword ptr [{}]", lateout(zmm_reg) out, in(reg) bytes,
            options(pure, readonly, nostack, preserves_flags));
    }
    out
}

/// Sixteen bytes, four times.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn four_times(bytes: &[u8; 16]) -> __m512i {
    let out;
    // SAFETY: as above, for 16 bytes.
    unsafe {
        asm!("vbroadcasti32x4 {}, xmmword ptr [{}]", lateout(zmm_reg) out, in(reg) bytes,
            options(pure, readonly, nostack, preserves_flags));
    }
    out
}

/// Sixteen bytes in those parts of 32 bits that the mask names.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn insert(mut into: __m512i, mask: __mmask16, bytes: &[u8; 16]) -> __m512i {
    // SAFETY: as above.
    unsafe {
        asm!("vbroadcasti32x4 {}{{{}}}, xmmword ptr [{}]", inout(zmm_reg) into, in(kreg) mask, in(reg) bytes,
            options(pure, readonly, nostack, preserves_flags));
    }
    into
}
