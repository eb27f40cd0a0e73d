//! `iq2_xxs` for AVX-512: eight numbers are one of 256 points and seven bits of signs.

use super::bytes::{Bytes, empty, heads};
use super::grid::{Grid, Place, even_signs, grid, group_scales, points, put_eights, signed_levels};
use super::vbmi::{multishift, permute_two};
use super::*;
use crate::kernels::format::Format;
use nibble_quant::grids::PACKED_IQ2_XXS;

/// One block.
struct Iq2Xxs;

impl Format for Iq2Xxs {
    const CHUNK_BYTES: usize = 66;
    const BIAS: i32 = 128;
    const TOP: i32 = 128 + 43;
}

blocks!("iq2_xxs", Iq2Xxs, load_pair);

static GRID: Grid<2> = grid(&PACKED_IQ2_XXS);
static LEVELS: Bytes = signed_levels(PACKED_IQ2_XXS.levels);
/// A group is four indices and a word of four times seven bits of signs and a scale; shifted, the signs are bytes too.
static SHIFT: Bytes = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        let shift = if i % 8 < 4 { 8 * (i % 8) } else { 32 + 7 * (i % 4) };
        table[i] = shift as u8;
        i += 1;
    }
    Bytes(table)
};
static INDICES: Bytes = Place { at: 0, group: 8, step: 1 }.indices();
static SIGNS: Bytes = Place { at: 4, group: 8, step: 1 }.signs();

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 66], b: &[u8; 66]) -> Pair {
    let d = heads(a, b, 0);
    let (a, b) = (load(a, 2), load(b, 2));
    let scale = group_scales(d, _mm512_srli_epi64::<60>(a), _mm512_srli_epi64::<60>(b), 0.25);
    let mut pair = empty([scale; 2]);
    let index = permute_two(a, INDICES.get(), b);
    let shifted = |x| multishift(SHIFT.get(), x);
    let signs = even_signs::<0>(permute_two(shifted(a), SIGNS.get(), shifted(b)));
    put_eights(points(&GRID, index, _mm512_setzero_si512()), signs, &LEVELS, &mut pair);
    pair
}
