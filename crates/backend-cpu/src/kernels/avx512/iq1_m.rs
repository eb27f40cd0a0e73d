//! `iq1_m` for AVX-512: eight numbers are one of 2048 ternary points, shifted by an eighth.

use super::bytes::{Bytes, Dwords, eight, empty, fine_order, heads, load_part, sixteen, unsigned};
use super::grid::{self, Grid, Place, grid, put_eights};
use super::points::{
    self, Fetched, Numbers, Order, Points, eight_times, maps_of_two_bits, numbers, word_each,
};
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

blocks!(SOME: "iq1_m", Iq1M, load_pair);

/// The kernels of this encoding.
pub const BLOCKS: Blocks = with_one!(SOME, Iq1M);

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
    put_eights(grid::points(&GRID, index, rest), negative, &LEVELS, &mut pair);
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
    let d = factors(a, b);
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

/// `d` of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn factors(a: &[u8], b: &[u8]) -> __m512 {
    let d = |row| {
        let words = eight(row, 48) as u64;
        let bits = words >> 12 & 0xF | words >> 24 & 0xF0 | words >> 36 & 0xF00 | words >> 48 & 0xF000;
        (bits as u16).to_le_bytes()
    };
    heads(&d(a), &d(b), 0)
}

pub static POINTS: Fetched<2048> = Fetched::new(&PACKED_IQ1);
/// Where the scales are in 32 bits.
static THREES: Dwords = Dwords([0, 3, 6, 9, 16, 19, 22, 25, 0, 3, 6, 9, 16, 19, 22, 25]);
/// Scales without `d`.
pub static SCALES: Numbers = numbers(0.125, 0.25, 8);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_points(a: &[u8; 56], b: &[u8; 56]) -> Points {
    let d = factors(a, b);
    let (byte, three) = (_mm512_set1_epi32(0xFF), _mm512_set1_epi32(0x700));
    let rest = |row| sixteen(row, 32);
    let rest = [_mm_unpacklo_epi64(rest(a), rest(b)), _mm_unpackhi_epi64(rest(a), rest(b))];
    let mut points = Points::ZERO;
    for i in 0..2 {
        // The low bytes of two indices in each 32 bits, and two nibbles of upper bits and a shift.
        let (low, high) = (word_each(a, b, 16 * i), _mm512_cvtepu8_epi32(rest[i]));
        let (first, second) = (_mm512_and_si512(low, byte), _mm512_srli_epi32::<8>(low));
        let first = _mm512_ternarylogic_epi32::<0xF8>(first, _mm512_slli_epi32::<8>(high), three);
        let second = _mm512_ternarylogic_epi32::<0xF8>(second, _mm512_slli_epi32::<4>(high), three);
        // SAFETY: indices have eleven bits.
        points.packed[i] = unsafe { POINTS.pairs(first, second) };
        // Twice the bit of the shift, turned, for both bytes of each point.
        let first = _mm512_and_si512(_mm512_srli_epi32::<2>(high), _mm512_set1_epi32(2));
        let second = _mm512_slli_epi32::<10>(high);
        let down = _mm512_ternarylogic_epi32::<0xF8>(first, second, _mm512_set1_epi32(2 << 16));
        let both = _mm512_or_si512(down, _mm512_slli_epi32::<8>(down));
        points.signs[i] = _mm512_xor_si512(both, _mm512_set1_epi8(2));
        let scales = _mm512_srlv_epi32(eight_times(a, b, 48 + 4 * i), THREES.get());
        points.scale[i] = _mm512_mul_ps(d, SCALES.pick(scales));
    }
    points
}

// Eighths: numbers are eight times a level, less 9, and 2 more where a point is shifted up.
points::packed!(Iq1M, bytes: 56, fine: true, bias: 9, first: 0, load_points);

impl points::Maps for Iq1M {
    const ORDER: Order = Order::Fine;
    const VECTORS: usize = 2;
    const MAPS: [u64; 8] = maps_of_two_bits([0, 8, 16]);
    const SIGNS: bool = false;
}
