//! `iq3_s` for AVX-512: four numbers are one of 512 points, with free signs.

use super::bytes::{Bytes, coarse_order, eight, empty, heads, unsigned};
use super::grid::{Grid, Place, four_indices, grid, points, put_fours, signed_levels};
use super::vbmi::{multishift, permute, permute_two};
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

blocks!("iq3_s", Iq3S, load_pair);

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
        points(&GRID, permute_two(a, INDICES[i].get(), b), rest)
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
