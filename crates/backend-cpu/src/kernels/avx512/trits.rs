//! Ternary numbers, five in a byte: `tq1_0` and `ptq1_0`.
//!
//! A table turns a byte into five pairs of bits: four in one byte, the fifth in another.

use super::bytes::{empty, halves_for_two, heads, load_part};
use super::grid::plane;
use super::vbmi::Table;
use super::*;
use crate::kernels::format::Format;

/// One block.
struct Tq1_0;

impl Format for Tq1_0 {
    const CHUNK_BYTES: usize = 54;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

/// Two blocks of 28 bytes.
struct Ptq1_0;

impl Format for Ptq1_0 {
    const CHUNK_BYTES: usize = 56;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

blocks!(TQ1_0_BLOCKS: "tq1_0", Tq1_0, load_block);
blocks!(PTQ1_0_BLOCKS: "ptq1_0", Ptq1_0, load_two);

/// Digit `n` of a byte, as 0, 1, 2: the byte is a fraction of 256, see the `quant` crate.
const fn digit(byte: usize, n: usize) -> u8 {
    let mut fraction = byte;
    let mut i = 0;
    while i < n {
        fraction = fraction * 3 % 256;
        i += 1;
    }
    ((fraction * 3) >> 8) as u8
}

/// `FIRST` holds digits 0 to 3, `FIFTH` digit 4.
static FIRST: [Table; 2] = digits(0, 4);
static FIFTH: [Table; 2] = digits(4, 1);

const fn digits(first: usize, count: usize) -> [Table; 2] {
    let mut tables = [Table::ZERO; 2];
    let mut i = 0;
    while i < 256 * count {
        let (byte, n) = (i / count, i % count);
        tables[byte / 128].0[byte % 128 / 64].0[byte % 64] |= digit(byte, first + n) << (2 * n);
        i += 1;
    }
    tables
}

/// Digits 0 to 3 of 64 bytes, and digit 4.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn unpack(bytes: __m512i) -> (__m512i, __m512i) {
    let top = [_mm512_movepi8_mask(bytes), 0, 0, 0];
    (plane(&FIRST, bytes, top), plane(&FIFTH, bytes, top))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_block(a: &[u8; 54], b: &[u8; 54]) -> Pair {
    let mut pair = empty([heads(a, b, 52); 2]);
    // Digits 0 to 3 of the first 32 bytes are groups 0 to 3.
    let (four, fifth) = unpack(join(half(a, 0), half(b, 0)));
    tq2_0::planes_of(four, 0, &mut pair);
    // The last 22 bytes twice: digits of the first 16 are half groups 10 to 14, and of the next 4 half group 15.
    let (a, b) = (load_part::<22>(a, 32), load_part::<22>(b, 32));
    let rest = _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b);
    let (rest, rest_fifth) = unpack(rest);
    // Half group 15 is digits 0 to 3 of four bytes, which lie behind the sixteen: to be shifted by 0, 2, 4, 6.
    let last = _mm512_shuffle_epi8(rest, _mm512_set1_epi32(0x0302_0100));
    let last = _mm512_srlv_epi32(last, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 4, 6)));
    let mask = _mm512_set1_epi8(3);
    // Lanes: of `a` the first sixteen bytes and the others, then of `b`.
    let evens = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    let odd_even = _mm512_setr_epi64(2, 3, 8, 9, 6, 7, 12, 13);
    let even_odd = _mm512_setr_epi64(0, 1, 10, 11, 4, 5, 14, 15);
    let second = _mm512_and_si512(_mm512_srli_epi16::<2>(rest), mask);
    let third = _mm512_and_si512(_mm512_srli_epi16::<4>(rest), mask);
    let fourth = _mm512_and_si512(_mm512_srli_epi16::<6>(rest), mask);
    pair.low[2] = _mm512_permutex2var_epi64(fifth, evens, _mm512_and_si512(rest, mask));
    pair.high[2] = _mm512_permutex2var_epi64(fifth, odd_even, second);
    pair.low[3] = _mm512_permutex2var_epi64(third, evens, rest_fifth);
    pair.high[3] = _mm512_permutex2var_epi64(fourth, even_odd, _mm512_and_si512(last, mask));
    pair
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_two(a: &[u8; 56], b: &[u8; 56]) -> Pair {
    let d = |row: &[u8; 56], block: usize| u16::from_le_bytes([row[28 * block + 26], row[28 * block + 27]]);
    let scales = |row: &[u8; 56]| [d(row, 0), d(row, 0), d(row, 1), d(row, 1)];
    let mut pair = empty([halves_for_two(scales(a), scales(b)); 2]);
    let mask = _mm512_set1_epi8(3);
    for block in 0..2 {
        // Lanes: of `a` the first sixteen bytes, then eight and two; the same of `b`.
        let (a, b) = (load_part::<26>(a, 28 * block), load_part::<26>(b, 28 * block));
        let (four, fifth) = unpack(_mm512_shuffle_i64x2::<0b01_00_01_00>(a, b));
        let (low, high) = ((0, 0x0004_0004_0004_0004), (0x0002_0002_0002_0002, 0x0006_0006_0006_0006));
        let first = _mm512_permutex_epi64::<0x44>(four);
        let digits = |(x, y)| _mm512_and_si512(_mm512_srlv_epi16(first, _mm512_set4_epi64(y, y, x, x)), mask);
        pair.low[2 * block] = digits(low);
        pair.high[2 * block] = digits(high);
        // Digits 0 to 3 of the eight bytes, and of the two.
        let eights = _mm512_permutex_epi64::<0b10_10_10_10>(four);
        let eights = _mm512_and_si512(_mm512_srlv_epi64(eights, _mm512_set4_epi64(6, 4, 2, 0)), mask);
        let twos = _mm512_shufflehi_epi16::<0>(four);
        let twos = _mm512_srlv_epi16(twos, _mm512_set1_epi64(0x0006_0004_0002_0000));
        pair.low[2 * block + 1] = _mm512_mask_blend_epi64(0b1100_1100, fifth, eights);
        let last = _mm512_mask_blend_epi64(0b0100_0100, eights, fifth);
        pair.high[2 * block + 1] = _mm512_mask_and_epi64(last, 0b1000_1000, twos, mask);
    }
    pair
}
