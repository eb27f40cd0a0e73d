//! `nvfp4` for AVX-512: blocks of 36 bytes, four eight-bit float scales and four times eight bytes of half-split
//! four-bit floats.

use super::bytes::{empty, fine_order};
use super::*;
use crate::kernels::format::Format;

/// Four blocks of 36 bytes.
struct Nvfp4;

impl Format for Nvfp4 {
    const CHUNK_BYTES: usize = 144;
    const FINE: bool = true;
    const BIAS: i32 = 16;
    const TOP: i32 = 28;
}

blocks!("nvfp4", Nvfp4, load_pair);

/// The floats, doubled, with 16 added.
static FLOATS: [u8; 16] = [16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4];

/// The doubled floats, with 16 added, that nibbles name; upper bits do not count.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn floats(q: __m512i) -> __m512i {
    // SAFETY: the reference covers the 16 bytes read, and `loadu` asks for no alignment.
    let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(FLOATS.as_ptr().cast()) });
    _mm512_shuffle_epi8(table, _mm512_and_si512(q, _mm512_set1_epi8(15)))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 144], b: &[u8; 144]) -> Pair {
    let mut pair = empty(scales(a, b));
    // The first eight of each sixteen numbers are in low nibbles, the others in high ones.
    let down = _mm512_set4_epi64(0x0004_0004_0004_0004, 0, 0x0004_0004_0004_0004, 0);
    for i in 0..4 {
        let both = join(half(a, 36 * i + 4), half(b, 36 * i + 4));
        let first = _mm512_permutex_epi64::<0b10_10_00_00>(both);
        let last = _mm512_permutex_epi64::<0b11_11_01_01>(both);
        pair.low[i] = floats(_mm512_srlv_epi16(first, down));
        pair.high[i] = floats(_mm512_srlv_epi16(last, down));
    }
    pair
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let codes = |row: &[u8]| {
        let four =
            |i: usize| i32::from_le_bytes(*row[36 * i..].first_chunk().expect("a block has four scales"));
        _mm_setr_epi32(four(0), four(1), four(2), four(3))
    };
    let codes = fine_order(codes(a), codes(b));
    [half_scale(codes[0]), half_scale(codes[1])]
}

/// Half of the scales that bytes stand for.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn half_scale(codes: __m128i) -> __m512 {
    let codes = _mm512_cvtepu8_epi32(codes);
    let there = _mm512_cmpneq_epi32_mask(codes, _mm512_set1_epi32(0x7F));
    // As a float whose exponent is 120 too small, half of it 119; subnormal numbers stay right.
    let code = _mm512_and_si512(codes, _mm512_set1_epi32(0x7F));
    let small = _mm512_castsi512_ps(_mm512_slli_epi32::<20>(code));
    _mm512_maskz_mul_ps(there, small, _mm512_set1_ps(f32::from_bits((119 + 127) << 23)))
}
