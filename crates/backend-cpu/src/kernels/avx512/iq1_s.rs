//! `iq1_s` for AVX-512: eight numbers are one of 2048 ternary points; a group is shifted by an eighth.

use super::bytes::{Bytes, coarse_order, empty, heads, load_part, sixteen, unsigned};
use super::grid::{self, Place, put_eights};
use super::iq1_m::{GRID, LEVELS, POINTS, SCALES};
use super::points::{self, Order, Points, maps_of_two_bits, word_each};
use super::vbmi::{multishift, permute_two};
use super::*;
use crate::kernels::format::Format;

/// One block.
struct Iq1S;

impl Format for Iq1S {
    const CHUNK_BYTES: usize = 50;
    const BIAS: i32 = 16;
    const TOP: i32 = 25;
}

blocks!(SOME: "iq1_s", Iq1S, load_pair);

/// The kernels of this encoding.
pub const BLOCKS: Blocks = with_one!(SOME, Iq1S);

static INDICES: Bytes = Place { at: 0, group: 4, step: 1 }.indices();
static REST: Bytes = Place { at: 0, group: 16, step: 3 }.index_bits();
/// The high byte of a group's word, for all of its numbers.
static SHIFTS: Bytes = Place { at: 33, group: 2, step: 0 }.signs();

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 50], b: &[u8; 50]) -> Pair {
    let mut pair = empty([scales(a, b); 2]);
    let (high_a, high_b) = (sixteen(a, 34), sixteen(b, 34));
    let rest = join(_mm256_broadcastsi128_si256(high_a), _mm256_broadcastsi128_si256(high_b));
    let rest = multishift(REST.get(), rest);
    let (a, b) = (load_part::<48>(a, 2), load_part::<48>(b, 2));
    let pick = |table: &Bytes| permute_two(a, table.get(), b);
    let negative = _mm512_movm_epi8(_mm512_movepi8_mask(pick(&SHIFTS)));
    put_eights(grid::points(&GRID, pick(&INDICES), rest), negative, &LEVELS, &mut pair);
    pair
}

/// `d * (2 * s + 1) / 8`, `s` being bits 12 to 14 of each word.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> __m512 {
    let top = |row| _mm_srli_epi16::<12>(sixteen(row, 34));
    let codes = _mm_and_si128(_mm_packus_epi16(top(a), top(b)), _mm_set1_epi8(7));
    let odd = _mm_or_si128(_mm_add_epi8(codes, codes), _mm_set1_epi8(1));
    let numbers = unsigned(coarse_order(_mm_cvtsi128_si64(odd), _mm_extract_epi64::<1>(odd)));
    _mm512_mul_ps(_mm512_mul_ps(heads(a, b, 0), numbers), _mm512_set1_ps(0.125))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_points(a: &[u8; 50], b: &[u8; 50]) -> Points {
    let mut points = Points::ZERO;
    // Four low bytes of indices in each 32 bits, and four times three upper bits, a scale and a shift.
    let (low, high) = (join(half(a, 2), half(b, 2)), word_each(a, b, 34));
    let (byte, three) = (_mm512_set1_epi32(0xFF), _mm512_set1_epi32(0x700));
    let and = |x| _mm512_and_si512(x, byte);
    let index = |low, high| _mm512_ternarylogic_epi32::<0xF8>(low, high, three);
    let indices = [
        index(and(low), _mm512_slli_epi32::<8>(high)),
        index(and(_mm512_srli_epi32::<8>(low)), _mm512_slli_epi32::<5>(high)),
        index(and(_mm512_srli_epi32::<16>(low)), _mm512_slli_epi32::<2>(high)),
        index(_mm512_srli_epi32::<24>(low), _mm512_srli_epi32::<1>(high)),
    ];
    for i in 0..2 {
        // SAFETY: indices have eleven bits.
        points.packed[i] = unsafe { POINTS.pairs(indices[2 * i], indices[2 * i + 1]) };
    }
    points.scale[0] = _mm512_mul_ps(heads(a, b, 0), SCALES.pick(_mm512_srli_epi32::<12>(high)));
    let up = _mm512_testn_epi32_mask(high, _mm512_set1_epi32(0x8000));
    points.signs = [_mm512_maskz_set1_epi32(up, 0x0202_0202); 4];
    points
}

// Eighths: numbers are eight times a level, less 9, and 2 more in a group that is shifted up.
points::packed!(Iq1S, bytes: 50, fine: false, bias: 9, first: 0, load_points);

impl points::Maps for Iq1S {
    const ORDER: Order = Order::Fours;
    const VECTORS: usize = 2;
    const MAPS: [u64; 8] = maps_of_two_bits([0, 8, 16]);
    const SIGNS: bool = false;
}
