//! `stq1_0` for AVX-512: fours of ternary numbers with one zero, named by a nibble and a sign.

use super::bytes::{Bytes, eight, empty, heads, select};
use super::one::{self, PAIRS, PLANES, Packed, Pairs, Picks, Sums, cut, fold, picks};
use super::vbmi::{multishift, permute};
use super::*;
use crate::kernels::format::Format;
use crate::kernels::matmul::Quad;

/// One block.
struct Stq1_0;

impl Format for Stq1_0 {
    const CHUNK_BYTES: usize = 42;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

blocks!(SOME: "stq1_0", Stq1_0, load_pair);

/// The kernels of this encoding.
pub const BLOCKS: Blocks = with_one!(SOME, Stq1_0);

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

/// The four numbers of each code and sign, with 1 added, two bits each; bit 5 of an index does not count.
static ALL_FOUR: Bytes = {
    let (even, odd) = (fours(0), fours(1));
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        let (first, last) = (i % 32, 32 + i % 32);
        table[i] = even.0[first] | odd.0[first] << 2 | even.0[last] << 4 | odd.0[last] << 6;
        i += 1;
    }
    Bytes(table)
};

/// Signs of the even, or odd, fours of a row, to bit 4.
const fn every_other(first: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = ((60 + first + 2 * (i % 32)) % 64) as u8;
        i += 1;
    }
    Bytes(table)
}

/// Sixteen fours hold two groups: the first half of the first, its second half, and then the same of the second group.
impl Packed for Stq1_0 {
    const BYTES: usize = 42;
    const READ: usize = 42;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &const {
        let mut numbers = [[0; 32]; 8];
        let mut i = 0;
        while i < 256 {
            // Vector: which group of two, which of its halves, even or odd fours.
            let (v, four) = (i / 32, 2 * (i % 32) + i / 32 % 2);
            numbers[v][i % 32] = 64 * (four / 16) + four % 16 + 16 * (v / 2);
            i += 1;
        }
        picks(numbers)
    };
    const GROUPS: [usize; 8] = [0, 2, 1, 3, 4, 6, 5, 7];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        static SIGNS: [Bytes; 2] = [every_other(0), every_other(1)];
        let zero = _mm512_setzero_si512();
        let mut fours = [[zero; 2]; PAIRS];
        for odd in 0..2 {
            for (p, [a, b]) in rows.iter().enumerate() {
                let signs = _mm512_mask_set1_epi64(_mm512_set1_epi64(eight(a, 32)), 0xF0, eight(b, 32));
                let sign = _mm512_multishift_epi64_epi8(SIGNS[odd].get(), signs);
                let nibbles = join(half(a, 0), half(b, 0));
                let nibbles = if odd == 0 { nibbles } else { _mm512_srli_epi16::<4>(nibbles) };
                let index = _mm512_ternarylogic_epi64::<0xCA>(_mm512_set1_epi8(15), nibbles, sign);
                fours[p][odd] = _mm512_permutexvar_epi8(index, ALL_FOUR.get());
            }
        }
        let mut dots = [[zero; PAIRS]; 2];
        for v in 0..8 {
            // Both sums by turns: none waits for the one before.
            let v = v % 2 * 4 + v / 2;
            let dots = &mut dots[v / 4];
            for p in 0..PAIRS {
                let codes = cut(fours[p][v % 2], &PLANES[v / 2]);
                dots[p] = _mm512_dpbusd_epi32(dots[p], codes, one::codes(x, v));
            }
            *dots = one::in_step(*dots);
        }
        let mut sums = [Sums::ZERO; PAIRS];
        for (p, [a, b]) in rows.iter().enumerate() {
            sums[p] = Sums::coarse(fold(dots[0][p], dots[1][p]), heads(a, b, 40));
        }
        sums
    }
}
