//! `iq3_xxs` for AVX-512: four numbers are one of 256 points; eight have seven bits of signs.

use super::bytes::{Bytes, empty, heads};
use super::grid::{
    Grid, Place, even_signs, four_indices, grid, group_scales, points, put_fours, signed_levels,
};
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

blocks!("iq3_xxs", Iq3Xxs, load_pair);

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
    let found = |i: usize| points(&GRID, permute_two(a, INDICES[i].get(), b), _mm512_setzero_si512());
    let ([p0, p1], [p2, p3]) = (found(0), found(1));
    put_fours([p0, p1, p2, p3], signs, &LEVELS, &mut pair);
    pair
}
