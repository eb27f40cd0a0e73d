//! Kernels for AVX2: 256-bit vectors without eight-bit dot products.
//!
//! One file per encoding says how 256 numbers of a row become eight vectors of codes and their scales ([`Wide`]); the
//! others are unpacked first. [`rows`] multiplies such numbers as they come, [`tile`] transposes
//! those of eight rows into a tile and multiplies that.

mod rows;
mod tile;

mod chunk;
mod iq4_nl;
mod iq4_xs;
mod q2_0;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod tq2_0;

use super::format::Format;
use super::matmul::Blocks;
use std::arch::x86_64::*;

pub use chunk::{COARSE, FINE};

/// Every encoding with a file here.
pub static KERNELS: &[Blocks] = &[
    iq4_nl::BLOCKS,
    iq4_xs::BLOCKS,
    q2_0::BLOCKS,
    q2_k::BLOCKS,
    q3_k::BLOCKS,
    q4_0::BLOCKS,
    q4_1::BLOCKS,
    q4_k::BLOCKS,
    q5_0::BLOCKS,
    q5_1::BLOCKS,
    q5_k::BLOCKS,
    q6_k::BLOCKS,
    q8_0::BLOCKS,
    tq2_0::BLOCKS,
];

/// 256 numbers of a row.
///
/// `low[i]` holds the first 16 codes of groups `2i` and `2i + 1`, `high[i]` their last 16: with the bias of the format,
/// or signed where that is 128. Scales and offsets are in [`super::activations::COARSE_ORDER`]; groups of 16 need two
/// such vectors, in [`super::activations::FINE_ORDER`].
#[derive(Clone, Copy)]
struct Wide {
    low: [__m256i; 4],
    high: [__m256i; 4],
    scale: [__m256; 2],
    offset: [__m256; 2],
}

/// The entry points of an encoding: what a file here adds to its `load`.
macro_rules! blocks {
    ($name:literal, $format:ty, $load:expr) => {
        $crate::kernels::avx2::blocks!(BLOCKS: $name, $format, $load);
    };
    ($blocks:ident: $name:literal, $format:ty, $load:expr) => {
        /// The kernels of this encoding.
        pub const $blocks: $crate::kernels::matmul::Blocks = {
            use $crate::kernels::matmul::{Blocks, Job, Quad, Tile, TileMut};
            #[target_feature(enable = "avx2,fma,f16c")]
            fn few(job: &Job<'_>, _: &mut [Quad]) {
                $crate::kernels::avx2::rows::product::<$format>(job, |row| $load(row));
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            fn fill(job: &Job<'_>, first: usize, tile: &mut TileMut<'_>) {
                $crate::kernels::avx2::tile::fill::<$format>(job, first, tile, |row| $load(row));
            }
            #[target_feature(enable = "avx2,fma,f16c")]
            fn tile(job: &Job<'_>, first: usize, tile: &Tile<'_>) {
                $crate::kernels::avx2::tile::product::<$format>(job, first, tile);
            }
            Blocks { name: $name, few, fill, tile }
        };
    };
}
use blocks;

/// Products of sixteen-bit sums: how many pairs of products with codes up to `top` fit.
const fn pairs_in_16_bits(top: i32) -> usize {
    (0x7FFF / (top * 127 * 2)) as usize
}

/// Sums of pairs of products. Signed codes (those with a bias of 128) lend their sign to the activations, as the
/// instruction wants one side unsigned; 128 * 127 * 2 still fits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn pairs<F: Format>(w: __m256i, x: __m256i) -> __m256i {
    if F::BIAS == 128 {
        _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w))
    } else {
        _mm256_maddubs_epi16(w, x)
    }
}

/// The 32 bytes at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load(bytes: &[u8], at: usize) -> __m256i {
    let bytes = &bytes[at..at + 32];
    // SAFETY: the slice covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

/// The 16 bytes at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn sixteen(bytes: &[u8], at: usize) -> __m128i {
    let bytes = &bytes[at..at + 16];
    // SAFETY: the slice covers the 16 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_floats(x: &[f32; 8]) -> __m256 {
    // SAFETY: the reference covers the 32 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm256_loadu_ps(x.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn store_floats(x: __m256, to: &mut [f32; 8]) {
    // SAFETY: the reference covers the 32 bytes written, and `storeu` asks for no alignment.
    unsafe { _mm256_storeu_ps(to.as_mut_ptr(), x) }
}

/// Numbers without codes.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn empty(scale: [__m256; 2]) -> Wide {
    let zero = [_mm256_setzero_si256(); 4];
    Wide { low: zero, high: zero, scale, offset: [_mm256_setzero_ps(); 2] }
}

/// Groups of 32 codes as a pair of vectors of the result.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn put_groups(wide: &mut Wide, i: usize, even: __m256i, odd: __m256i) {
    wide.low[i] = _mm256_permute2x128_si256::<0x20>(even, odd);
    wide.high[i] = _mm256_permute2x128_si256::<0x31>(even, odd);
}

/// The half-precision number at `at`, eight times.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn head(block: &[u8], at: usize) -> __m256 {
    _mm256_cvtph_ps(_mm_set1_epi16(i16::from_le_bytes([block[at], block[at + 1]])))
}

/// The half-precision numbers at `at` in eight blocks of `BYTES`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn halves_at<const BYTES: usize>(row: &[u8], at: usize) -> __m256 {
    let d = |group: usize| i16::from_le_bytes([row[BYTES * group + at], row[BYTES * group + at + 1]]);
    _mm256_cvtph_ps(_mm_setr_epi16(d(0), d(2), d(4), d(6), d(1), d(3), d(5), d(7)))
}

/// Half-split nibbles of eight blocks of `BYTES`, from byte `at` of each on.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn nibbles<const BYTES: usize>(row: &[u8], at: usize, wide: &mut Wide) {
    let mask = _mm256_set1_epi8(15);
    for i in 0..4 {
        let at = 2 * BYTES * i + at;
        let packed = _mm256_set_m128i(sixteen(row, at + BYTES), sixteen(row, at));
        wide.low[i] = _mm256_and_si256(packed, mask);
        wide.high[i] = _mm256_and_si256(_mm256_srli_epi16::<4>(packed), mask);
    }
}

/// Eight signed bytes as numbers, from groups in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn coarse_order(bytes: u64) -> __m256 {
    let order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, -1, -1, -1, -1, -1, -1, -1, -1);
    let bytes = _mm_shuffle_epi8(_mm_cvtsi64_si128(bytes as i64), order);
    _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes))
}

/// Sixteen signed bytes as numbers, from groups of 16 in order.
#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn fine_order(bytes: __m128i) -> [__m256; 2] {
    let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    let bytes = _mm_shuffle_epi8(bytes, order);
    let numbers = |bytes| _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
    [numbers(bytes), numbers(_mm_unpackhi_epi64(bytes, bytes))]
}
