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

    /// Rows `0..n` of `from` (`dim` numbers every `stride`) as columns of `to`, whose rows have 64 places. Columns
    /// from `n` on hold anything afterwards.
    ///
    /// # Safety
    /// As all of the trait.
    #[inline(always)]
    unsafe fn transpose(from: &[f32], stride: usize, n: usize, dim: usize, to: &mut [f32]) {
        for (position, row) in from.chunks_exact(stride).take(n).enumerate() {
            for (d, &x) in row[..dim].iter().enumerate() {
                to[d * 64 + position] = x;
            }
        }
    }
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

    /// 8 x 8 numbers at a time, the rest one by one.
    #[inline(always)]
    unsafe fn transpose(from: &[f32], stride: usize, n: usize, dim: usize, to: &mut [f32]) {
        let n = n.next_multiple_of(8);
        assert!(n <= 64 && from.len() >= n * stride && stride >= dim && to.len() >= dim * 64);
        let whole = dim / 8 * 8;
        for position in (0..n).step_by(8) {
            for d in (0..whole).step_by(8) {
                unsafe {
                    macro_rules! row {
                        ($i:expr) => {
                            _mm256_loadu_ps(from.as_ptr().add((position + $i) * stride + d))
                        };
                    }
                    let columns =
                        square([row!(0), row!(1), row!(2), row!(3), row!(4), row!(5), row!(6), row!(7)]);
                    for (i, column) in columns.into_iter().enumerate() {
                        _mm256_storeu_ps(to.as_mut_ptr().add((d + i) * 64 + position), column);
                    }
                }
            }
            for d in whole..dim {
                for position in position..position + 8 {
                    to[d * 64 + position] = from[position * stride + d];
                }
            }
        }
    }

    /// Rows as columns.
    #[inline(always)]
    unsafe fn square(r: [__m256; 8]) -> [__m256; 8] {
        macro_rules! both {
            ($f:ident, $g:ident, $a:expr, $b:expr) => {
                ($f($a, $b), $g($a, $b))
            };
        }
        macro_rules! halves {
            ($a:expr, $b:expr) => {
                (_mm256_shuffle_ps::<0x44>($a, $b), _mm256_shuffle_ps::<0xEE>($a, $b))
            };
        }
        unsafe {
            let (a0, a1) = both!(_mm256_unpacklo_ps, _mm256_unpackhi_ps, r[0], r[1]);
            let (a2, a3) = both!(_mm256_unpacklo_ps, _mm256_unpackhi_ps, r[2], r[3]);
            let (a4, a5) = both!(_mm256_unpacklo_ps, _mm256_unpackhi_ps, r[4], r[5]);
            let (a6, a7) = both!(_mm256_unpacklo_ps, _mm256_unpackhi_ps, r[6], r[7]);
            let ((b0, b1), (b2, b3)) = (halves!(a0, a2), halves!(a1, a3));
            let ((b4, b5), (b6, b7)) = (halves!(a4, a6), halves!(a5, a7));
            [
                _mm256_permute2f128_ps::<0x20>(b0, b4),
                _mm256_permute2f128_ps::<0x20>(b1, b5),
                _mm256_permute2f128_ps::<0x20>(b2, b6),
                _mm256_permute2f128_ps::<0x20>(b3, b7),
                _mm256_permute2f128_ps::<0x31>(b0, b4),
                _mm256_permute2f128_ps::<0x31>(b1, b5),
                _mm256_permute2f128_ps::<0x31>(b2, b6),
                _mm256_permute2f128_ps::<0x31>(b3, b7),
            ]
        }
    }

    impl Lanes for __m512 {
        #[inline(always)]
        unsafe fn transpose(from: &[f32], stride: usize, n: usize, dim: usize, to: &mut [f32]) {
            unsafe { transpose(from, stride, n, dim, to) }
        }
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
        #[inline(always)]
        unsafe fn transpose(from: &[f32], stride: usize, n: usize, dim: usize, to: &mut [f32]) {
            unsafe { transpose(from, stride, n, dim, to) }
        }
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
