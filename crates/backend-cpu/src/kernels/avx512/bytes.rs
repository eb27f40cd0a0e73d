//! Tables of bytes, and what the encodings with tables share.

use super::*;

/// A table of 64 bytes.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Bytes(pub [u8; 64]);

impl Bytes {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn get(&self) -> __m512i {
        // SAFETY: the reference covers the 64 bytes read.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// Sixteen dwords.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
pub struct Dwords(pub [u32; 16]);

impl Dwords {
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub fn get(&self) -> __m512i {
        // SAFETY: the reference covers the 64 bytes read.
        unsafe { _mm512_load_si512(self.0.as_ptr().cast()) }
    }
}

/// The first `N` bytes at `at`, then zeros.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn load_part<const N: usize>(bytes: &[u8], at: usize) -> __m512i {
    let bytes = &bytes[at..at + N];
    // SAFETY: the mask keeps the read inside the slice.
    unsafe { _mm512_maskz_loadu_epi8(u64::MAX >> (64 - N), bytes.as_ptr().cast()) }
}

/// The eight bytes at `at`.
#[inline(always)]
pub fn eight(bytes: &[u8], at: usize) -> i64 {
    i64::from_le_bytes(*bytes[at..].first_chunk().expect("eight bytes of a block"))
}

/// The `N` bytes at `at`.
#[inline(always)]
pub fn part<const N: usize>(bytes: &[u8], at: usize) -> &[u8; N] {
    bytes[at..].first_chunk().expect("bytes of a block")
}

/// The sixteen bytes at `at`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn sixteen(bytes: &[u8], at: usize) -> __m128i {
    let bytes: &[u8; 16] = bytes[at..].first_chunk().expect("sixteen bytes of a block");
    // SAFETY: the reference covers the 16 bytes read, and `loadu` asks for no alignment.
    unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
}

/// A half-precision number of each of two rows at `at`, eight times the one and eight times the other.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn heads(a: &[u8], b: &[u8], at: usize) -> __m512 {
    let bits = |block: &[u8]| i32::from(u16::from_le_bytes([block[at], block[at + 1]]));
    let both = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(bits(a) | bits(b) << 16)));
    _mm512_permutexvar_ps(_mm512_mask_blend_epi32(0xFF00, _mm512_setzero_si512(), _mm512_set1_epi32(1)), both)
}

/// Four numbers of blocks of a row, four of the other: each for two groups of 32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn halves_for_two(a: [u16; 4], b: [u16; 4]) -> __m512 {
    let four = |x: [u16; 4]| x.into_iter().rev().fold(0, |all, x| all << 16 | i64::from(x));
    let twice = |x: [u16; 4]| _mm_set1_epi64x(four(x));
    _mm512_cvtph_ps(_mm256_set_m128i(twice(b), twice(a)))
}

/// A byte for each group of 16 of two rows, in [`FINE_ORDER`](crate::kernels::activations::FINE_ORDER).
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn fine_order(a: __m128i, b: __m128i) -> [__m128i; 2] {
    let order = _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
    let (a, b) = (_mm_shuffle_epi8(a, order), _mm_shuffle_epi8(b, order));
    [_mm_unpacklo_epi64(a, b), _mm_unpackhi_epi64(a, b)]
}

/// A byte for each group of 32 of two rows, in [`COARSE_ORDER`](crate::kernels::activations::COARSE_ORDER).
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn coarse_order(a: i64, b: i64) -> __m128i {
    let order = _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15);
    _mm_shuffle_epi8(_mm_set_epi64x(b, a), order)
}

/// Sixteen unsigned bytes as numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn unsigned(bytes: __m128i) -> __m512 {
    _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes))
}

/// Sixteen signed bytes as numbers.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn signed(bytes: __m128i) -> __m512 {
    _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))
}

/// The sixteen nibbles of eight bytes of each of two rows, low ones first.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn nibbles(a: i64, b: i64) -> [__m128i; 2] {
    let (both, mask) = (_mm_set_epi64x(b, a), _mm_set1_epi8(15));
    let (low, high) = (_mm_and_si128(both, mask), _mm_and_si128(_mm_srli_epi16::<4>(both), mask));
    [_mm_unpacklo_epi8(low, high), _mm_unpackhi_epi8(low, high)]
}

/// `mask ? a : b`, bit by bit.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn select(mask: __m512i, a: __m512i, b: __m512i) -> __m512i {
    _mm512_ternarylogic_epi64::<0xCA>(mask, a, b)
}

/// Codes without scales, all empty.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn empty(scale: [__m512; 2]) -> Pair {
    let zero = [_mm512_setzero_si512(); 4];
    Pair { low: zero, high: zero, scale, offset: [_mm512_setzero_ps(); 2] }
}
