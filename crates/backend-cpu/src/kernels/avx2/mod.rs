//! Kernels for AVX2: 256-bit vectors without eight-bit dot products.

mod rows;
mod tile;

super::plain::plain_kernels!("avx2,fma,f16c");

use super::format::Format;
use std::arch::x86_64::*;

/// Products of sixteen-bit sums: how many pairs of products with codes up to `top` fit.
const fn pairs_in_16_bits(top: i32) -> usize {
    (0x7FFF / (top * 127 * 2)) as usize
}

/// Sums of pairs of products. Signed codes (those with a bias of 128) lend their sign to the activations, as the
/// instruction wants one side unsigned; 128 * 127 * 2 still fits.
#[inline]
#[target_feature(enable = "avx2")]
fn pairs<F: Format>(w: __m256i, x: __m256i) -> __m256i {
    if F::BIAS == 128 {
        _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    } else {
        _mm256_maddubs_epi16(w, x)
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_bytes(bytes: &[u8; 32]) -> __m256i {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_floats(x: &[f32; 8]) -> __m256 {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn store_floats(x: __m256, to: &mut [f32; 8]) {
    // SAFETY: the reference covers the 32 bytes written, and `storeu` asks for no alignment.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
}
