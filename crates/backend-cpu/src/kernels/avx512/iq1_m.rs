//! `iq1_m` for AVX-512: eight numbers are one of 2048 ternary points, shifted by an eighth.

use super::bytes::{Bytes, eight, empty, fine_order, heads, load_part, sixteen, unsigned};
use super::grid::{Grid, Place, grid, points, put_eights};
use super::vbmi::{multishift, permute_two};
use super::*;
use crate::kernels::format::Format;
use nibble_quant::grids::PACKED_IQ1;

/// One block.
struct Iq1M;

impl Format for Iq1M {
    const CHUNK_BYTES: usize = 56;
    const FINE: bool = true;
    const BIAS: i32 = 16;
    const TOP: i32 = 25;
}

blocks!("iq1_m", Iq1M, load_pair);

/// The ternary grid.
pub static GRID: Grid<16> = grid(&PACKED_IQ1);
/// Eighths with 16 added: 1 more than eight times a level, or 1 less where bit 2 is set.
pub static LEVELS: Bytes = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (8 * (i % 4) + 9 - i / 4 % 2 * 2) as u8;
        i += 1;
    }
    Bytes(table)
};
static INDICES: Bytes = Place { at: 0, group: 4, step: 1 }.indices();
static REST: Bytes = Place { at: 0, group: 16, step: 4 }.index_bits();
/// After the nibbles have become bytes.
static SHIFTS: Bytes = Place { at: 0, group: 4, step: 1 }.signs();

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 56], b: &[u8; 56]) -> Pair {
    let mut pair = empty(scales(a, b));
    let (high_a, high_b) = (sixteen(a, 32), sixteen(b, 32));
    let rest = join(_mm256_broadcastsi128_si256(high_a), _mm256_broadcastsi128_si256(high_b));
    let rest = multishift(REST.get(), rest);
    let shifts = permute_two(upper_nibbles(high_a), SHIFTS.get(), upper_nibbles(high_b));
    let negative = _mm512_movm_epi8(_mm512_movepi8_mask(shifts));
    let (a, b) = (load_part::<32>(a, 0), load_part::<32>(b, 0));
    let index = permute_two(a, INDICES.get(), b);
    put_eights(points(&GRID, index, rest), negative, &LEVELS, &mut pair);
    pair
}

/// The nibbles of sixteen bytes, low ones first, each in the upper half of a byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn upper_nibbles(bytes: __m128i) -> __m512i {
    let low = _mm_slli_epi16::<4>(bytes);
    let nibbles = _mm256_set_m128i(_mm_unpackhi_epi8(low, bytes), _mm_unpacklo_epi8(low, bytes));
    _mm512_castsi256_si512(nibbles)
}

/// `d * (2 * s + 1) / 8`: words hold four times three bits and four of the sixteen bits of `d`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let d = |row| {
        let words = eight(row, 48) as u64;
        let bits = words >> 12 & 0xF | words >> 24 & 0xF0 | words >> 36 & 0xF00 | words >> 48 & 0xF000;
        (bits as u16).to_le_bytes()
    };
    let d = heads(&d(a), &d(b), 0);
    let shifts = _mm512_broadcast_i32x4(_mm_set_epi64x(0x3936_3330_2926_2320, 0x1916_1310_0906_0300));
    let codes = |row| {
        let three = multishift(shifts, _mm512_set1_epi64(eight(row, 48)));
        let three = _mm_and_si128(_mm512_castsi512_si128(three), _mm_set1_epi8(7));
        _mm_or_si128(_mm_add_epi8(three, three), _mm_set1_epi8(1))
    };
    let codes = fine_order(codes(a), codes(b));
    let scale = |codes| _mm512_mul_ps(_mm512_mul_ps(d, unsigned(codes)), _mm512_set1_ps(0.125));
    [scale(codes[0]), scale(codes[1])]
}
