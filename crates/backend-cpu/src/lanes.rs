//! Vectors of `f32` of each instruction set under one trait, for code that is written once: attention.
//!
//! All sums are per lane, and every lane rounds alike, so the width of a vector changes no result: AVX2, AVX-512 and
//! NEON agree bit for bit. [`Plain`], for processors without fused multiply-add, rounds twice.

/// A vector of `LEN` numbers.
///
/// # Safety
/// Every function may be called only where the instruction set of the implementation was detected; loads and stores
/// touch `LEN` elements at the pointer.
#[allow(missing_docs, reason = "the names say it")]
pub trait Lanes: Copy {
    const LEN: usize;
    /// Queries worth handling together: how many fit into the registers with four accumulators each.
    const QUERIES: usize;
    unsafe fn splat(x: f32) -> Self;
    unsafe fn load(at: *const f32) -> Self;
    /// Half-precision numbers, widened.
    unsafe fn load_f16(at: *const u16) -> Self;
    /// Signed bytes, widened.
    unsafe fn load_i8(at: *const i8) -> Self;
    /// The low or the high nibbles of bytes, less 8, widened.
    unsafe fn load_nibbles(at: *const u8, high: bool) -> Self;
    /// Says that the memory will be read soon; any address will do.
    #[inline(always)]
    unsafe fn prefetch(_at: *const u8) {}
    unsafe fn store(self, at: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn mul(self, other: Self) -> Self;
    unsafe fn div(self, other: Self) -> Self;
    /// The greater one; `other` if either is no number.
    unsafe fn max(self, other: Self) -> Self;
    /// `self * by + to`
    unsafe fn mul_add(self, by: Self, to: Self) -> Self;
    /// To the nearest integer, ties to even.
    unsafe fn round(self) -> Self;
    /// Two to the power of `self`, an integer in -126..=127.
    unsafe fn exp2_int(self) -> Self;

    /// The exponential of numbers that are not positive, within 2e-7 of it; 0 below -87.
    ///
    /// # Safety
    /// As all of the trait.
    #[inline(always)]
    unsafe fn exp_negative(self) -> Self {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            // In this order `max` hands a NaN on.
            let x = Self::splat(-87.0).max(self);
            let n = x.mul(Self::splat(std::f32::consts::LOG2_E)).round();
            // ln 2 in two parts, so that n * ln 2 is subtracted exactly enough.
            let r = n.mul_add(Self::splat(-0.693_359_4), x);
            let r = n.mul_add(Self::splat(2.121_944_4e-4), r);
            let mut p = Self::splat(1.0 / 5040.0);
            for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0] {
                p = p.mul_add(r, Self::splat(c));
            }
            p.mul(n.exp2_int()).zero_where(self, -87.0)
        }
    }

    /// 0 where `x <= limit`, `self` elsewhere.
    unsafe fn zero_where(self, x: Self, limit: f32) -> Self;
}

/// For any processor.
#[derive(Clone, Copy)]
pub struct Plain([f32; 8]);

impl Plain {
    #[inline(always)]
    fn map(self, f: impl Fn(f32) -> f32) -> Self {
        Self(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
        Self(std::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl Lanes for Plain {
    const LEN: usize = 8;
    const QUERIES: usize = 2;
    #[inline(always)]
    unsafe fn splat(x: f32) -> Self {
        Self([x; 8])
    }
    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller promises 8 numbers there.
        Self(unsafe { at.cast::<[f32; 8]>().read_unaligned() })
    }
    #[inline(always)]
    unsafe fn load_f16(at: *const u16) -> Self {
        // SAFETY: the caller promises 8 numbers there.
        let bits = unsafe { at.cast::<[u16; 8]>().read_unaligned() };
        Self(bits.map(|b| half::f16::from_bits(b).to_f32()))
    }
    #[inline(always)]
    unsafe fn load_i8(at: *const i8) -> Self {
        // SAFETY: the caller promises 8 numbers there.
        Self(unsafe { at.cast::<[i8; 8]>().read_unaligned() }.map(f32::from))
    }
    #[inline(always)]
    unsafe fn load_nibbles(at: *const u8, high: bool) -> Self {
        // SAFETY: the caller promises 8 bytes there.
        let bytes = unsafe { at.cast::<[u8; 8]>().read_unaligned() };
        Self(bytes.map(|b| f32::from((b >> if high { 4 } else { 0 } & 15) as i8 - 8)))
    }
    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller promises room for 8 numbers there.
        unsafe { at.cast::<[f32; 8]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        self.zip(other, |a, b| a + b)
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        self.zip(other, |a, b| a - b)
    }
    #[inline(always)]
    unsafe fn mul(self, other: Self) -> Self {
        self.zip(other, |a, b| a * b)
    }
    #[inline(always)]
    unsafe fn div(self, other: Self) -> Self {
        self.zip(other, |a, b| a / b)
    }
    #[inline(always)]
    unsafe fn max(self, other: Self) -> Self {
        self.zip(other, |a, b| if a > b { a } else { b })
    }
    #[inline(always)]
    unsafe fn mul_add(self, by: Self, to: Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].mul_add(by.0[i], to.0[i])))
    }
    #[inline(always)]
    unsafe fn round(self) -> Self {
        self.map(f32::round_ties_even)
    }
    #[inline(always)]
    unsafe fn exp2_int(self) -> Self {
        self.map(|x| f32::from_bits(((x as i32 + 127) as u32) << 23))
    }
    #[inline(always)]
    unsafe fn zero_where(self, x: Self, limit: f32) -> Self {
        self.zip(x, |v, x| if x <= limit { 0.0 } else { v })
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #![allow(
        clippy::undocumented_unsafe_blocks,
        reason = "each is one instruction that the trait's caller detected"
    )]
    use super::Lanes;
    use std::arch::x86_64::*;

    impl Lanes for __m512 {
        const LEN: usize = 16;
        const QUERIES: usize = 4;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { _mm512_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            unsafe { _mm512_loadu_ps(at) }
        }
        #[inline(always)]
        unsafe fn load_f16(at: *const u16) -> Self {
            unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(at.cast())) }
        }
        #[inline(always)]
        unsafe fn load_i8(at: *const i8) -> Self {
            unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(at.cast()))) }
        }
        #[inline(always)]
        unsafe fn load_nibbles(at: *const u8, high: bool) -> Self {
            unsafe {
                let bytes = _mm_loadu_si128(at.cast());
                let bytes = if high { _mm_srli_epi16::<4>(bytes) } else { bytes };
                let codes = _mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8));
                _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(codes))
            }
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            unsafe { _mm512_storeu_ps(at, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { _mm512_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { _mm512_sub_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { _mm512_mul_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            unsafe { _mm512_div_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            unsafe { _mm512_max_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, by: Self, to: Self) -> Self {
            unsafe { _mm512_fmadd_ps(self, by, to) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            unsafe { _mm512_roundscale_ps::<0>(self) }
        }
        #[inline(always)]
        unsafe fn exp2_int(self) -> Self {
            unsafe {
                let n = _mm512_add_epi32(_mm512_cvtps_epi32(self), _mm512_set1_epi32(127));
                _mm512_castsi512_ps(_mm512_slli_epi32::<23>(n))
            }
        }
        #[inline(always)]
        unsafe fn zero_where(self, x: Self, limit: f32) -> Self {
            unsafe {
                let above = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(x, _mm512_set1_ps(limit));
                _mm512_maskz_mov_ps(above, self)
            }
        }
    }

    impl Lanes for __m256 {
        const LEN: usize = 8;
        const QUERIES: usize = 2;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { _mm256_set1_ps(x) }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            unsafe { _mm256_loadu_ps(at) }
        }
        #[inline(always)]
        unsafe fn load_f16(at: *const u16) -> Self {
            unsafe { _mm256_cvtph_ps(_mm_loadu_si128(at.cast())) }
        }
        #[inline(always)]
        unsafe fn load_i8(at: *const i8) -> Self {
            unsafe { _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(at.cast()))) }
        }
        #[inline(always)]
        unsafe fn load_nibbles(at: *const u8, high: bool) -> Self {
            unsafe {
                let bytes = _mm_loadl_epi64(at.cast());
                let bytes = if high { _mm_srli_epi16::<4>(bytes) } else { bytes };
                let codes = _mm_sub_epi8(_mm_and_si128(bytes, _mm_set1_epi8(15)), _mm_set1_epi8(8));
                _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes))
            }
        }
        #[inline(always)]
        unsafe fn prefetch(at: *const u8) {
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            unsafe { _mm256_storeu_ps(at, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { _mm256_add_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { _mm256_sub_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { _mm256_mul_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            unsafe { _mm256_div_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            unsafe { _mm256_max_ps(self, other) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, by: Self, to: Self) -> Self {
            unsafe { _mm256_fmadd_ps(self, by, to) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            unsafe { _mm256_round_ps::<{ _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC }>(self) }
        }
        #[inline(always)]
        unsafe fn exp2_int(self) -> Self {
            unsafe {
                let n = _mm256_add_epi32(_mm256_cvtps_epi32(self), _mm256_set1_epi32(127));
                _mm256_castsi256_ps(_mm256_slli_epi32::<23>(n))
            }
        }
        #[inline(always)]
        unsafe fn zero_where(self, x: Self, limit: f32) -> Self {
            unsafe { _mm256_and_ps(self, _mm256_cmp_ps::<_CMP_NLE_UQ>(x, _mm256_set1_ps(limit))) }
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    #![allow(clippy::undocumented_unsafe_blocks, reason = "each is one instruction that every aarch64 has")]
    use super::Lanes;
    use std::arch::aarch64::*;

    impl Lanes for float32x4_t {
        const LEN: usize = 4;
        const QUERIES: usize = 4;
        #[inline(always)]
        unsafe fn splat(x: f32) -> Self {
            unsafe { vdupq_n_f32(x) }
        }
        #[inline(always)]
        unsafe fn load(at: *const f32) -> Self {
            unsafe { vld1q_f32(at) }
        }
        #[inline(always)]
        unsafe fn load_f16(at: *const u16) -> Self {
            unsafe {
                let bits = at.cast::<[u16; 4]>().read_unaligned();
                let wide = bits.map(|b| half::f16::from_bits(b).to_f32());
                vld1q_f32(wide.as_ptr())
            }
        }
        #[inline(always)]
        unsafe fn load_i8(at: *const i8) -> Self {
            unsafe {
                let four = vcreate_s8(u64::from(at.cast::<u32>().read_unaligned()));
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(four))))
            }
        }
        #[inline(always)]
        unsafe fn load_nibbles(at: *const u8, high: bool) -> Self {
            unsafe {
                let four = at.cast::<u32>().read_unaligned() >> if high { 4 } else { 0 } & 0x0F0F_0F0F;
                let codes = vsub_s8(vcreate_s8(u64::from(four)), vdup_n_s8(8));
                vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(codes))))
            }
        }
        #[inline(always)]
        unsafe fn store(self, at: *mut f32) {
            unsafe { vst1q_f32(at, self) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            unsafe { vaddq_f32(self, other) }
        }
        #[inline(always)]
        unsafe fn sub(self, other: Self) -> Self {
            unsafe { vsubq_f32(self, other) }
        }
        #[inline(always)]
        unsafe fn mul(self, other: Self) -> Self {
            unsafe { vmulq_f32(self, other) }
        }
        #[inline(always)]
        unsafe fn div(self, other: Self) -> Self {
            unsafe { vdivq_f32(self, other) }
        }
        #[inline(always)]
        unsafe fn max(self, other: Self) -> Self {
            unsafe { vbslq_f32(vcgtq_f32(self, other), self, other) }
        }
        #[inline(always)]
        unsafe fn mul_add(self, by: Self, to: Self) -> Self {
            unsafe { vfmaq_f32(to, self, by) }
        }
        #[inline(always)]
        unsafe fn round(self) -> Self {
            unsafe { vrndnq_f32(self) }
        }
        #[inline(always)]
        unsafe fn exp2_int(self) -> Self {
            unsafe {
                let n = vaddq_s32(vcvtq_s32_f32(self), vdupq_n_s32(127));
                vreinterpretq_f32_s32(vshlq_n_s32::<23>(n))
            }
        }
        #[inline(always)]
        unsafe fn zero_where(self, x: Self, limit: f32) -> Self {
            unsafe {
                let below = vcleq_f32(x, vdupq_n_f32(limit));
                vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(self), below))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_close_and_zero_far_out() {
        for i in 0..9000 {
            let x = -(i as f32) / 100.0;
            let mut out = [0.0; 8];
            // SAFETY: plain code runs everywhere; `out` has 8 places.
            unsafe { Plain::splat(x).exp_negative().store(out.as_mut_ptr()) };
            let expected = if x > -87.0 { f64::from(x).exp() } else { 0.0 };
            assert!((f64::from(out[0]) - expected).abs() <= 3e-7 * expected, "{x}: {} {expected}", out[0]);
        }
    }
}
