//! `stq1_0` for AVX-512: fours of ternary numbers with one zero, named by a nibble and a sign.

use super::bytes::{Bytes, eight, empty, heads, select};
use super::vbmi::{multishift, permute};
use super::*;
use crate::kernels::format::Format;

/// One block.
struct Stq1_0;

impl Format for Stq1_0 {
    const CHUNK_BYTES: usize = 42;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

blocks!("stq1_0", Stq1_0, load_pair);

/// Number `p`, and then number `p + 2`, of the four that each code and sign stands for, with 1 added.
const fn fours(p: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (p, zero) = (p + i / 32 * 2, i >> 2 & 3);
        // Which of the three that are not zero it is; the first has no bit of its own.
        let k = if p > zero { p - 1 } else { p };
        let negative = (if k == 0 { 0 } else { i >> (k - 1) & 1 }) ^ (i >> 4 & 1);
        table[i] = if p == zero { 1 } else { 2 - 2 * negative as u8 };
        i += 1;
    }
    Bytes(table)
}

static EVEN: Bytes = fours(0);
static ODD: Bytes = fours(1);

/// Sixteen nibbles of 64 bits in each lane.
static NIBBLES: Bytes = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = 4 * (i % 16) as u8;
        i += 1;
    }
    Bytes(table)
};

/// Sixteen of 64 signs in each lane, from `16 * i` on, to bit 4.
static SIGNS: [Bytes; 4] = {
    let mut tables = [Bytes([0; 64]); 4];
    let mut i = 0;
    while i < 256 {
        tables[i / 64].0[i % 64] = ((60 + 16 * (i / 64) + i % 16) % 64) as u8;
        i += 1;
    }
    tables
};

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 42], b: &[u8; 42]) -> Pair {
    let mut pair = empty([heads(a, b, 40); 2]);
    let both = |at| _mm512_mask_set1_epi64(_mm512_set1_epi64(eight(a, at)), 0xF0, eight(b, at));
    let (signs, nibbles) = (both(32), NIBBLES.get());
    let (even, odd) = (EVEN.get(), ODD.get());
    // The second of two groups takes numbers 2 and 3 of each four.
    let lane = _mm512_set4_epi64(0x2020_2020_2020_2020, 0x2020_2020_2020_2020, 0, 0);
    for i in 0..4 {
        let codes = multishift(nibbles, both(8 * i));
        let sign = multishift(SIGNS[i].get(), signs);
        let index = select(_mm512_set1_epi8(15), codes, sign);
        let index = select(_mm512_set1_epi8(31), index, lane);
        pair.low[i] = permute(index, even);
        pair.high[i] = permute(index, odd);
    }
    pair
}
