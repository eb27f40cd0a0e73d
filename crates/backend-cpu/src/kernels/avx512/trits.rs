//! Ternary numbers, five in a byte: `tq1_0` and `ptq1_0`.
//!
//! A table turns a byte into five pairs of bits: four in one byte, the fifth in another.

use super::bytes::{Bytes, empty, halves_for_two, heads, load_part, part};
use super::grid::plane;
use super::one::{PLANES, Packed, Picks, Sums, cut, cuts, fold, picks};
use super::vbmi::{Table, four_times, insert};
use super::*;
use crate::kernels::format::Format;
use crate::kernels::matmul::Quad;

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

blocks!(SOME_TQ1_0: "tq1_0", Tq1_0, load_block);
blocks!(SOME_PTQ1_0: "ptq1_0", Ptq1_0, load_two);

/// The kernels of `tq1_0`.
pub const TQ1_0_BLOCKS: Blocks = with_one!(SOME_TQ1_0, Tq1_0);

/// The kernels of `ptq1_0`.
pub const PTQ1_0_BLOCKS: Blocks = with_one!(SOME_PTQ1_0, Ptq1_0);

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

/// Sixteen activations, for each of four rows of weights.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn sixteen_of(x: &[Quad], i: usize) -> __m512i {
    four_times(part(&x[i / 2].0, 16 * (i % 2)))
}

/// The sixteen bytes at `at` of each of four rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn of_four(rows: &[&[u8]], at: usize) -> __m512i {
    let all = insert(four_times(part(rows[0], at)), 0x00F0, part(rows[1], at));
    insert(insert(all, 0x0F00, part(rows[2], at)), 0xF000, part(rows[3], at))
}

/// What a table of 256 bytes says of 64 bytes; the masks are their bits 6 and 7.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn meaning(table: &'static [Table; 2], bytes: __m512i, bits: [u64; 2]) -> __m512i {
    let [[a, b], [c, d]] = [&table[0].0, &table[1].0].map(|[first, last]| [first.get(), last.get()]);
    let half = |a, b| _mm512_mask_permutexvar_epi8(_mm512_permutexvar_epi8(bytes, a), bits[0], bytes, b);
    _mm512_mask_blend_epi8(bits[1], half(a, b), half(c, d))
}

/// Bits 6 and 7 of each byte.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn top_bits(bytes: __m512i) -> [u64; 2] {
    [_mm512_test_epi8_mask(bytes, _mm512_set1_epi8(64)), _mm512_movepi8_mask(bytes)]
}

/// Digits 0 to 3 of each byte, and digit 4.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn five(bytes: __m512i) -> [__m512i; 2] {
    let bits = top_bits(bytes);
    [meaning(&FIRST, bytes, bits), meaning(&FIFTH, bytes, bits)]
}

/// Sums of groups 0 to 7 of two pairs of rows, from vectors with four parts of each row's sum of each group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn folded(dots: [__m512i; 8]) -> [__m512i; 2] {
    let [first, last] = [0, 4].map(|i| [dots[i], dots[i + 1], dots[i + 2], dots[i + 3]]);
    let first = fold(fold(first[0], first[1]), fold(first[2], first[3]));
    let last = fold(fold(last[0], last[1]), fold(last[2], last[3]));
    let pair = |a| {
        _mm512_permutex2var_epi64(
            first,
            _mm512_setr_epi64(a, a + 1, a + 8, a + 9, a + 2, a + 3, a + 10, a + 11),
            last,
        )
    };
    [pair(0), pair(4)]
}

/// Sixteen numbers after sixteen, as they come.
const SIXTEENS: Picks = {
    let mut numbers = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        numbers[i / 32][i % 32] = i;
        i += 1;
    }
    picks(numbers)
};

impl Packed for Tq1_0 {
    const BYTES: usize = 54;
    const READ: usize = 54;
    const BIAS: i32 = 1;
    const ROWS: usize = 4;
    const PICKS: &'static Picks = &SIXTEENS;
    const GROUPS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &[&[u8]], x: &[Quad], to: &mut [Sums]) {
        let mut dots = [_mm512_setzero_si512(); 8];
        // Digit n of the first 32 bytes is group n.
        for half in 0..2 {
            let [four, fifth] = five(of_four(rows, 16 * half));
            for n in 0..4 {
                let codes = cut(four, &PLANES[n]);
                dots[n] = _mm512_dpbusd_epi32(dots[n], codes, sixteen_of(x, 2 * n + half));
            }
            dots[4] = _mm512_dpbusd_epi32(dots[4], fifth, sixteen_of(x, 8 + half));
        }
        // Of the next 16, half of one.
        let [four, fifth] = five(of_four(rows, 32));
        for n in 0..4 {
            let i = 5 + n / 2;
            dots[i] = _mm512_dpbusd_epi32(dots[i], cut(four, &PLANES[n]), sixteen_of(x, 10 + n));
        }
        dots[7] = _mm512_dpbusd_epi32(dots[7], fifth, sixteen_of(x, 14));
        // Four digits of the last four are the last half.
        let word = |row: &[u8], at| i32::from_le_bytes([row[at], row[at + 1], row[at + 2], row[at + 3]]);
        let last = |i: usize| word(rows[i], 48);
        let last = _mm512_castsi128_si512(_mm_setr_epi32(last(0), last(1), last(2), last(3)));
        let last =
            _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3), last);
        let last = meaning(&FIRST, last, top_bits(last));
        let last = _mm512_srlv_epi32(last, _mm512_broadcast_i32x4(_mm_setr_epi32(0, 2, 4, 6)));
        let last = _mm512_and_si512(last, _mm512_set1_epi8(3));
        dots[7] = _mm512_dpbusd_epi32(dots[7], last, sixteen_of(x, 15));
        let d = |i: usize| i64::from(u16::from_le_bytes([rows[i][52], rows[i][53]]));
        let scales = _mm_cvtph_ps(_mm_cvtsi64_si128(d(0) | d(1) << 16 | d(2) << 32 | d(3) << 48));
        for (p, dots) in folded(dots).into_iter().enumerate() {
            let (a, b) = (2 * p as i32, 2 * p as i32 + 1);
            let pick = _mm512_mask_set1_epi32(_mm512_set1_epi32(a), 0xFF00, b);
            to[p] = Sums::coarse(dots, _mm512_permutexvar_ps(pick, _mm512_castps128_ps512(scales)));
        }
    }
}

impl Packed for Ptq1_0 {
    const BYTES: usize = 56;
    const READ: usize = 56;
    const BIAS: i32 = 1;
    const ROWS: usize = 4;
    const PICKS: &'static Picks = &SIXTEENS;
    const GROUPS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &[&[u8]], x: &[Quad], to: &mut [Sums]) {
        // Half of what is cut out is a digit, half the next.
        static DIGITS: [Bytes; 2] = [cuts(2, [0, 2, 0, 2, 0, 2, 0, 2]), cuts(2, [4, 6, 4, 6, 4, 6, 4, 6])];
        static SCALES: Bytes = {
            let mut table = [0; 64];
            let mut i = 0;
            while i < 64 {
                table[i] = (i / 16 * 16 + [2, 14][i / 8 % 2] + i % 2) as u8;
                i += 1;
            }
            Bytes(table)
        };
        let mut dots = [_mm512_setzero_si512(); 8];
        // Of each row, eight bytes of the first block and eight of the second.
        let (first, second) = (of_four(rows, 16), of_four(rows, 40));
        let [four, fifth] = five(_mm512_mask_shuffle_epi32::<0b10_01_00_00>(first, 0xCCCC, second));
        // Behind them two bytes and the scale: of the first block at 0, of the second at 12.
        let ends = _mm512_unpackhi_epi32(first, second);
        let twos = _mm_setr_epi8(0, 1, 0, 1, 0, 1, 0, 1, 12, 13, 12, 13, 12, 13, 12, 13);
        let twos = _mm512_shuffle_epi8(ends, _mm512_broadcast_i32x4(twos));
        let twos = meaning(&FIRST, twos, top_bits(twos));
        let twos = _mm512_srlv_epi16(twos, _mm512_set1_epi64(0x0006_0004_0002_0000));
        let twos = _mm512_and_si512(twos, _mm512_set1_epi8(3));
        let eights = [_mm512_unpacklo_epi64(four, four), _mm512_unpackhi_epi64(four, four)];
        let last = [_mm512_unpacklo_epi64(fifth, twos), _mm512_unpackhi_epi64(fifth, twos)];
        for block in 0..2 {
            let mut add = |group: usize, codes, i: usize| {
                let dots = &mut dots[4 * block + group];
                *dots = _mm512_dpbusd_epi32(*dots, codes, sixteen_of(x, 8 * block + i));
            };
            let [four, fifth] = five(of_four(rows, 28 * block));
            for n in 0..4 {
                add(n / 2, cut(four, &PLANES[n]), n);
            }
            add(2, fifth, 4);
            add(2, cut(eights[block], &DIGITS[0]), 5);
            add(3, cut(eights[block], &DIGITS[1]), 6);
            add(3, last[block], 7);
        }
        let scales = _mm512_permutexvar_epi8(SCALES.get(), ends);
        let scales = [_mm512_castsi512_si256(scales), _mm512_extracti64x4_epi64::<1>(scales)];
        for (p, dots) in folded(dots).into_iter().enumerate() {
            to[p] = Sums::coarse(dots, _mm512_cvtph_ps(scales[p]));
        }
    }
}
