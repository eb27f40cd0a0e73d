//! `iq3_s` for AVX-512: four numbers are one of 512 points, with free signs.

use super::bytes::{Bytes, Dwords, coarse_order, eight, empty, heads, unsigned};
use super::grid::{self, Grid, Place, four_indices, grid, plane, put_fours, signed_levels};
use super::points::{self, Numbers, Order, Points, dwords, eight_times, map, numbers};
use super::vbmi::{Table, multishift, permute, permute_two};
use super::*;
use crate::kernels::format::Format;
use crate::kernels::six_bits::nibbles;
use nibble_quant::grids::PACKED_IQ3_S;

/// One block.
struct Iq3S;

impl Format for Iq3S {
    const CHUNK_BYTES: usize = 110;
    const BIAS: i32 = 128;
    const TOP: i32 = 128 + 15;
}

blocks!(SOME: "iq3_s", Iq3S, load_pair);

/// The kernels of this encoding.
pub const BLOCKS: Blocks = with_one!(SOME, Iq3S);

static GRID: Grid<4> = grid(&PACKED_IQ3_S);
static LEVELS: Bytes = signed_levels(PACKED_IQ3_S.levels);
static INDICES: [Bytes; 2] = four_indices(64);
static REST: [Bytes; 2] = four_indices(0);
/// For 32 bytes of each row in one vector, not two.
static SIGNS: Bytes = {
    let mut table = Place { at: 0, group: 4, step: 1 }.signs();
    let mut i = 0;
    while i < 64 {
        table.0[i] = table.0[i] % 64 + table.0[i] / 64 * 32;
        i += 1;
    }
    table
};

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 110], b: &[u8; 110]) -> Pair {
    let mut pair = empty([scales(a, b); 2]);
    let rest = _mm512_mask_set1_epi64(_mm512_set1_epi64(eight(a, 66)), 0xF0, eight(b, 66));
    let signs = permute(SIGNS.get(), join(half(a, 74), half(b, 74)));
    let (a, b) = (load(a, 2), load(b, 2));
    let found = |i: usize| {
        let rest = multishift(REST[i].get(), rest);
        grid::points(&GRID, permute_two(a, INDICES[i].get(), b), rest)
    };
    let ([p0, p1], [p2, p3]) = (found(0), found(1));
    put_fours([p0, p1, p2, p3], signs, &LEVELS, &mut pair);
    pair
}

/// `d * (1 + 2 * s)`, `s` being a nibble for each group.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> __m512 {
    let spread = |row: &[u8]| {
        let four = u32::from_le_bytes(*row[106..].first_chunk().expect("a block has four bytes of scales"));
        (2 * nibbles(four) + 0x0101_0101_0101_0101) as i64
    };
    _mm512_mul_ps(heads(a, b, 0), unsigned(coarse_order(spread(a), spread(b))))
}

/// Where bit `bit` of the levels of two numbers is in a byte of packed vector `v`: those at `2v` and `2v + 1` are signs.
const fn place(v: usize, bit: usize) -> usize {
    if bit < 2 * v { bit } else { bit + 2 }
}

/// The bytes of the four packed vectors.
static PLANES: [[Table; 4]; 4] = {
    let (mut planes, mut i) = ([[Table::ZERO; 4]; 4], 0);
    while i < 4 * 512 {
        let (v, i_of_v) = (i / 512, i % 512);
        let levels = PACKED_IQ3_S.point(i_of_v) >> (v % 2 * 8);
        let bits = levels & 7 | (levels & 0x70) >> 1;
        let mut bit = 0;
        while bit < 6 {
            planes[v][i_of_v / 128].0[i_of_v % 128 / 64].0[i_of_v % 64] |=
                ((bits >> bit & 1) << place(v, bit)) as u8;
            bit += 1;
        }
        i += 1;
    }
    planes
};

/// The even bytes of two rows, and the odd ones.
static HALVES: [Bytes; 2] = points::even_and_odd();
/// Where the ninth bits of their indices are in 64 bits.
static NINTH: [Bytes; 2] = {
    let (mut tables, mut i) = ([Bytes([0; 64]); 2], 0);
    while i < 128 {
        tables[i % 2].0[i / 2] = (i % 64) as u8;
        i += 1;
    }
    tables
};
/// Where the scales are in 32 bits, and those without `d`.
static FOURS: Dwords = dwords(0, 4);
static SCALES: Numbers = numbers(1.0, 2.0, 16);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_points(a: &[u8; 110], b: &[u8; 110]) -> Points {
    let mut points = Points::ZERO;
    let rest = _mm512_mask_set1_epi64(_mm512_set1_epi64(eight(a, 66)), 0xF0, eight(b, 66));
    let signs = join(half(a, 74), half(b, 74));
    let scales = SCALES.pick(_mm512_srlv_epi32(eight_times(a, b, 106), FOURS.get()));
    points.scale[0] = _mm512_mul_ps(heads(a, b, 0), scales);
    let (a, b) = (load(a, 2), load(b, 2));
    for v in 0..4 {
        let index = permute_two(a, HALVES[v / 2].get(), b);
        let ninth = multishift(NINTH[v / 2].get(), rest);
        let ninth = _mm512_test_epi8_mask(ninth, _mm512_set1_epi8(1));
        let levels = plane(&PLANES[v], index, [_mm512_movepi8_mask(index), ninth, 0, 0]);
        // Levels, or signs where the mask is set.
        let mask = _mm512_set1_epi8(3 << (2 * v));
        points.packed[v] = _mm512_ternarylogic_epi64::<0xF8>(levels, signs, mask);
    }
    points
}

points::packed!(Iq3S, bytes: 110, fine: false, bias: 15, first: 16, load_points);

/// Numbers are `2 * t + 1` with `t` a level, or minus that: codes are twice `t + 8`, of which a sign turns four bits, less 15.
impl points::Maps for Iq3S {
    const ORDER: Order = Order::Eights;
    const VECTORS: usize = 4;
    const MAPS: [u64; 8] = {
        let (mut maps, mut i) = ([0; 8], 0);
        while i < 8 {
            let mut columns = [0; 8];
            columns[i] = 30;
            let mut bit = 0;
            while bit < 3 {
                columns[place(i / 2, i % 2 * 3 + bit)] = 2 << bit;
                bit += 1;
            }
            maps[i] = map(columns);
            i += 1;
        }
        maps
    };
    const SIGNS: bool = false;
}
