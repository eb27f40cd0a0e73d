//! `iq2_s` for AVX-512: eight numbers are one of 1024 points and eight signs.

use super::bytes::{Bytes, eight, empty, heads};
use super::grid::{Grid, Place, grid, points, put_eights, quarter_scales, signed_levels};
use super::vbmi::{multishift, permute_two};
use super::*;
use crate::kernels::format::Format;
use nibble_quant::grids::PACKED_IQ2_S;

/// One block.
struct Iq2S;

impl Format for Iq2S {
    const CHUNK_BYTES: usize = 82;
    const FINE: bool = true;
    const BIAS: i32 = 128;
    const TOP: i32 = 128 + 43;
}

blocks!("iq2_s", Iq2S, load_pair);

static GRID: Grid<8> = grid(&PACKED_IQ2_S);
static LEVELS: Bytes = signed_levels(PACKED_IQ2_S.levels);
static INDICES: Bytes = Place { at: 0, group: 4, step: 1 }.indices();
static REST: Bytes = Place { at: 0, group: 8, step: 2 }.index_bits();
static SIGNS: Bytes = Place { at: 32, group: 4, step: 1 }.signs();

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 82], b: &[u8; 82]) -> Pair {
    let mut pair = empty(quarter_scales(heads(a, b, 0), eight(a, 74), eight(b, 74)));
    // Two bits for each eight numbers.
    let rest = _mm512_mask_set1_epi64(_mm512_set1_epi64(eight(a, 66)), 0xF0, eight(b, 66));
    let rest = multishift(REST.get(), rest);
    let (a, b) = (load(a, 2), load(b, 2));
    let pick = |table: &Bytes| permute_two(a, table.get(), b);
    put_eights(points(&GRID, pick(&INDICES), rest), pick(&SIGNS), &LEVELS, &mut pair);
    pair
}
