//! `iq3_xxs` for AVX-512: four numbers are one of 256 points; eight have seven bits of signs.

use super::bytes::{Bytes, empty, heads};
use super::grid::{
    self, Grid, Place, even_signs, four_indices, grid, group_scales, plane, put_fours, signed_levels,
};
use super::points::{self, Numbers, Order, Points, map, numbers};
use super::vbmi::{multishift, permute_two};
use super::*;
use crate::kernels::format::Format;
use nibble_quant::grids::PACKED_IQ3_XXS;

/// One block.
struct Iq3Xxs;

impl Format for Iq3Xxs {
    const CHUNK_BYTES: usize = 98;
    const BIAS: i32 = 128;
    const TOP: i32 = 128 + 62;
}

blocks!(SOME: "iq3_xxs", Iq3Xxs, load_pair);

/// The kernels of this encoding.
pub const BLOCKS: Blocks = with_one!(SOME, Iq3Xxs);

static GRID: Grid<2> = grid(&PACKED_IQ3_XXS);
static LEVELS: Bytes = signed_levels(PACKED_IQ3_XXS.levels);
static INDICES: [Bytes; 2] = four_indices(64);
static SIGNS: Bytes = Place { at: 0, group: 8, step: 1 }.signs();

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 98], b: &[u8; 98]) -> Pair {
    let words = |row| _mm512_cvtepu32_epi64(half(row, 66));
    let (a_words, b_words) = (words(a), words(b));
    let (a_scale, b_scale) = (_mm512_srli_epi64::<28>(a_words), _mm512_srli_epi64::<28>(b_words));
    let mut pair = empty([group_scales(heads(a, b, 0), a_scale, b_scale, 0.5); 2]);
    let sevens = _mm512_set1_epi64(0x150E_0700);
    let shifted = |x| multishift(sevens, x);
    let signs = even_signs::<0>(permute_two(shifted(a_words), SIGNS.get(), shifted(b_words)));
    let (a, b) = (load(a, 2), load(b, 2));
    let found = |i: usize| grid::points(&GRID, permute_two(a, INDICES[i].get(), b), _mm512_setzero_si512());
    let ([p0, p1], [p2, p3]) = (found(0), found(1));
    put_fours([p0, p1, p2, p3], signs, &LEVELS, &mut pair);
    pair
}

/// The grid with the fourth bit of the last level set.
static MARKED: Grid<2> = {
    let (mut marked, mut i) = (grid(&PACKED_IQ3_XXS), 0);
    while i < 256 {
        let (low, high) =
            (&mut marked.low[i / 128].0[i % 128 / 64].0, &mut marked.high[i / 128].0[i % 128 / 64].0);
        low[i % 64] = mark(low[i % 64]);
        high[i % 64] = mark(high[i % 64]);
        i += 1;
    }
    marked
};

/// Sets the fourth bit of each half that is 7.
const fn mark(byte: u8) -> u8 {
    byte | (byte << 1 & byte << 2 & byte << 3) & 0x88
}

/// The even bytes of two rows, and the odd ones.
static HALVES: [Bytes; 2] = points::even_and_odd();
/// The scales without `d`.
static SCALES: Numbers = numbers(0.25, 0.5, 16);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_points(a: &[u8; 98], b: &[u8; 98]) -> Points {
    let mut points = Points::ZERO;
    let words = join(half(a, 66), half(b, 66));
    // Where four times seven bits begin in both halves of 64.
    let sevens = _mm512_set1_epi64(0x352E_2720_150E_0700);
    points.signs = [even_signs::<0>(multishift(sevens, words)); 4];
    points.scale[0] = _mm512_mul_ps(heads(a, b, 0), SCALES.pick(_mm512_srli_epi32::<28>(words)));
    let (a, b) = (load(a, 2), load(b, 2));
    for i in 0..2 {
        let index = permute_two(a, HALVES[i].get(), b);
        let top = [_mm512_movepi8_mask(index), 0, 0, 0];
        points.packed[2 * i] = plane(&MARKED.low, index, top);
        points.packed[2 * i + 1] = plane(&MARKED.high, index, top);
    }
    points
}

points::packed!(Iq3Xxs, bytes: 98, fine: false, bias: 0, first: 4, load_points);

impl points::Maps for Iq3Xxs {
    const ORDER: Order = Order::Eights;
    const VECTORS: usize = 4;
    const MAPS: [u64; 8] = {
        // Codes are 4 + 8 * level, and two more for the last level, which sets the fourth bit in `MARKED`.
        let (low, high) = (map([8, 16, 32, 2, 0, 0, 0, 0]), map([0, 0, 0, 0, 8, 16, 32, 2]));
        [low, high, low, high, low, high, low, high]
    };
    const SIGNS: bool = true;
}
