//! `iq2_xs` for AVX-512: eight numbers are one of 512 points and seven bits of signs, in 16 bits.

use super::bytes::{Bytes, eight, empty, heads};
use super::grid::{Grid, Place, even_signs, grid, points, put_eights, quarter_scales, signed_levels};
use super::vbmi::permute_two;
use super::*;
use crate::kernels::format::Format;
use nibble_quant::grids::PACKED_IQ2_XS;

/// One block.
struct Iq2Xs;

impl Format for Iq2Xs {
    const CHUNK_BYTES: usize = 74;
    const FINE: bool = true;
    const BIAS: i32 = 128;
    const TOP: i32 = 128 + 43;
}

blocks!("iq2_xs", Iq2Xs, load_pair);

static GRID: Grid<4> = grid(&PACKED_IQ2_XS);
static LEVELS: Bytes = signed_levels(PACKED_IQ2_XS.levels);
const LOW: Place = Place { at: 0, group: 8, step: 2 };
const HIGH: Place = Place { at: 1, group: 8, step: 2 };
static INDICES: Bytes = LOW.indices();
static REST: Bytes = HIGH.indices();
static SIGNS: Bytes = HIGH.signs();

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 74], b: &[u8; 74]) -> Pair {
    let mut pair = empty(quarter_scales(heads(a, b, 0), eight(a, 66), eight(b, 66)));
    let (a, b) = (load(a, 2), load(b, 2));
    let pick = |table: &Bytes| permute_two(a, table.get(), b);
    let signs = even_signs::<1>(pick(&SIGNS));
    put_eights(points(&GRID, pick(&INDICES), pick(&REST)), signs, &LEVELS, &mut pair);
    pair
}
