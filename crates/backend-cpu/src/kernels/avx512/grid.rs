//! Lookups of grid points in registers: what the `iq1`, `iq2` and `iq3` encodings share.
//!
//! A point is packed into 16 bits, eight numbers of two bits or four of four. Its two bytes come from two planes of
//! tables, 64 points at a time. Indices are put in such an order that a vector of 32 packed points holds, in each of
//! its eight parts of 64 bits, what that part of the code vectors is made of; so one shift of bytes out of 64 bits
//! makes 64 codes of it, without moving anything across.

use super::bytes::{Bytes, Dwords, select};
use super::vbmi::{Table, affine, look_up, multishift, permute};
use super::*;
use nibble_quant::grids::Packed;

/// A grid of `128 * N` points: the low bytes of all points, then the high ones.
pub struct Grid<const N: usize> {
    pub low: [Table; N],
    pub high: [Table; N],
}

/// The tables of a grid.
pub const fn grid<const N: usize>(packed: &Packed) -> Grid<N> {
    let mut grid = Grid { low: [Table::ZERO; N], high: [Table::ZERO; N] };
    let mut i = 0;
    while i < 128 * N {
        let [low, high] = packed.point(i).to_le_bytes();
        grid.low[i / 128].0[i % 128 / 64].0[i % 64] = low;
        grid.high[i / 128].0[i % 128 / 64].0[i % 64] = high;
        i += 1;
    }
    grid
}

/// Looks 64 indices up: `index` holds their low eight bits, `top[i]` their bits `7 + i`.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn plane<const N: usize>(tables: &[Table; N], index: __m512i, top: [u64; 4]) -> __m512i {
    let mut found = [_mm512_setzero_si512(); N];
    for n in 0..N {
        found[n] = look_up(&tables[n], index);
    }
    let (mut count, mut level) = (N, 0);
    while count > 1 {
        count /= 2;
        for n in 0..count {
            found[n] = _mm512_mask_blend_epi8(top[level], found[2 * n], found[2 * n + 1]);
        }
        level += 1;
    }
    found[0]
}

/// The packed points of 64 indices, whose low eight bits and whose bits from 8 on are given: those of the first eight
/// indices in each 128 bits, and those of the last eight.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn points<const N: usize>(grid: &Grid<N>, index: __m512i, rest: __m512i) -> [__m512i; 2] {
    let bit = |bit| _mm512_test_epi8_mask(rest, _mm512_set1_epi8(bit));
    let mut top = [_mm512_movepi8_mask(index), 0, 0, 0];
    for level in 1..4 {
        if N > 1 << level {
            top[level] = bit(1 << (level - 1));
        }
    }
    let (low, high) = (plane(&grid.low, index, top), plane(&grid.high, index, top));
    [_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)]
}

/// Which row, and which eight numbers of it, part `part` (of 64 bits) of code vector `vector` holds: vectors are
/// `low[0]`, `high[0]`, `low[1]` and so on.
const fn eight_of(vector: usize, part: usize) -> (usize, usize) {
    let group = vector / 2 * 2 + part % 4 / 2;
    (part / 4, 4 * group + vector % 2 * 2 + part % 2)
}

/// A byte for each eight numbers of two rows. It is found at `at + GROUP * group + STEP * (which of four)` of its row.
#[derive(Clone, Copy)]
pub struct Place {
    pub at: usize,
    pub group: usize,
    pub step: usize,
}

impl Place {
    const fn of(self, eight: usize) -> usize {
        self.at + self.group * (eight / 4) + self.step * (eight % 4)
    }

    /// Picks from two rows of 64 bytes the bytes of indices of points of eight numbers.
    pub const fn indices(self) -> Bytes {
        let mut table = [0; 64];
        let mut i = 0;
        while i < 64 {
            let (row, eight) = index_of_eight(i);
            table[i] = (64 * row + self.of(eight)) as u8;
            i += 1;
        }
        Bytes(table)
    }

    /// The same as bits of 64 for a shift.
    pub const fn index_bits(self) -> Bytes {
        let mut table = [0; 64];
        let mut i = 0;
        while i < 64 {
            table[i] = (self.of(index_of_eight(i).1) % 64) as u8;
            i += 1;
        }
        Bytes(table)
    }

    /// Picks from two rows of 64 bytes those that say signs: byte `vector` of each part is for that code vector.
    pub const fn signs(self) -> Bytes {
        let mut table = [0; 64];
        let mut i = 0;
        while i < 64 {
            let (row, eight) = eight_of(i % 8, i / 8);
            table[i] = (64 * row + self.of(eight)) as u8;
            i += 1;
        }
        Bytes(table)
    }
}

/// Which row and which eight numbers index `i` is for.
const fn index_of_eight(i: usize) -> (usize, usize) {
    let (part, vector) = (i / 16 * 2 + i % 8 / 4, i % 16 / 8 * 4 + i % 4);
    eight_of(vector, part)
}

/// The places of the indices of points of four numbers: 64 for the first half of the numbers, 64 for the second. Row
/// `b` begins at `row`.
pub const fn four_indices(row: usize) -> [Bytes; 2] {
    let mut tables = [Bytes([0; 64]); 2];
    let mut i = 0;
    while i < 128 {
        let (part, vector) = (i % 64 / 16 * 2 + i % 8 / 4, i / 64 * 4 + i % 16 / 8 * 2 + i % 4 / 2);
        let (of, eight) = eight_of(vector, part);
        tables[i / 64].0[i % 64] = (row * of + 2 * eight + i % 2) as u8;
        i += 1;
    }
    tables
}

/// Where the codes of four, or two, vectors are in 64 bits.
static TWO_BITS: [Bytes; 4] = shifts(16, 2);
static FOUR_BITS: [Bytes; 2] = shifts(32, 4);

const fn shifts<const N: usize>(vector: usize, number: usize) -> [Bytes; N] {
    let mut tables = [Bytes([0; 64]); N];
    let mut i = 0;
    while i < 64 * N {
        tables[i / 64].0[i % 64] = (i / 64 * vector + i % 8 * number) as u8;
        i += 1;
    }
    tables
}

/// Where the signs of eight vectors are in 64 bits, to go to bit 2, or to bit 3.
static SIGNS_TO_2: [Bytes; 8] = signs_to(2);
static SIGNS_TO_3: [Bytes; 8] = signs_to(3);

const fn signs_to(bit: usize) -> [Bytes; 8] {
    let mut tables = [Bytes([0; 64]); 8];
    let mut i = 0;
    while i < 512 {
        tables[i / 64].0[i % 64] = ((64 - bit + i / 64 * 8 + i % 8) % 64) as u8;
        i += 1;
    }
    tables
}

/// The code for each level of two bits and its sign in bit 2, or of three bits and its sign in bit 3, with 128 added.
pub const fn signed_levels(levels: &[i8]) -> Bytes {
    let mut table = [0; 64];
    let bits = if levels.len() > 4 { 3 } else { 2 };
    let mut i = 0;
    while i < 64 {
        let level = i % (1 << bits);
        let level = if level < levels.len() { levels[level] as u8 } else { 0 };
        table[i] = if i >> bits & 1 == 0 { 128 + level } else { 128 - level };
        i += 1;
    }
    Bytes(table)
}

/// Codes from four times 32 points of four numbers ([`points`] of [`four_indices`]); `signs` are in the order of
/// [`Place::signs`], `levels` are [`signed_levels`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn put_fours(points: [__m512i; 4], signs: __m512i, levels: &Bytes, pair: &mut Pair) {
    let (levels, three) = (levels.get(), _mm512_set1_epi8(7));
    for i in 0..4 {
        for (half, codes) in [&mut pair.low[i], &mut pair.high[i]].into_iter().enumerate() {
            let level = multishift(FOUR_BITS[half].get(), points[i]);
            let sign = multishift(SIGNS_TO_3[2 * i + half].get(), signs);
            *codes = permute(select(three, level, sign), levels);
        }
    }
}

/// Codes from two times 32 points of eight numbers, whose indices are in the order of [`Place::indices`].
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn put_eights(points: [__m512i; 2], signs: __m512i, levels: &Bytes, pair: &mut Pair) {
    let (levels, two) = (levels.get(), _mm512_set1_epi8(3));
    for i in 0..4 {
        for (half, codes) in [&mut pair.low[i], &mut pair.high[i]].into_iter().enumerate() {
            let level = multishift(TWO_BITS[i % 2 * 2 + half].get(), points[i / 2]);
            let sign = multishift(SIGNS_TO_2[2 * i + half].get(), signs);
            *codes = permute(select(two, level, sign), levels);
        }
    }
}

/// Signs of seven-bit indices, which start at bit `FIRST`: the eighth makes the number of minus signs even.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn even_signs<const FIRST: u32>(indices: __m512i) -> __m512i {
    // Row `i` of the matrix, from the top byte down, says which bits of the index make bit `i`.
    let mut matrix = 0u64;
    for bit in 0..7 {
        matrix |= 1 << (FIRST + bit) << (8 * (7 - bit));
    }
    matrix |= 0x7F << FIRST;
    affine(indices, _mm512_set1_epi64(matrix as i64))
}

/// The dword from each of eight parts of 64 bits of two rows, one for each group of 32.
pub static GROUPS: Dwords = {
    let mut table = [0; 16];
    let mut place = 0;
    while place < 16 {
        let group = crate::kernels::activations::COARSE_ORDER[place % 8];
        table[place] = (place / 8 * 16 + 2 * group) as u32;
        place += 1;
    }
    Dwords(table)
};

/// Scales `d * (0.5 + s) * FACTOR`, `s` being the number in each of eight parts of 64 bits of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn group_scales(d: __m512, a: __m512i, b: __m512i, factor: f32) -> __m512 {
    let s = _mm512_cvtepi32_ps(_mm512_permutex2var_epi32(a, GROUPS.get(), b));
    let scale = _mm512_mul_ps(d, _mm512_add_ps(s, _mm512_set1_ps(0.5)));
    _mm512_mul_ps(scale, _mm512_set1_ps(factor))
}

/// Scales `d * (0.5 + s) / 4`, `s` being a nibble for each 16 numbers of two rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn quarter_scales(d: __m512, a: i64, b: i64) -> [__m512; 2] {
    let [a, b] = bytes::nibbles(a, b);
    let codes = bytes::fine_order(a, b);
    let scale = |codes| {
        let s = _mm512_add_ps(bytes::unsigned(codes), _mm512_set1_ps(0.5));
        _mm512_mul_ps(_mm512_mul_ps(d, s), _mm512_set1_ps(0.25))
    };
    [scale(codes[0]), scale(codes[1])]
}
