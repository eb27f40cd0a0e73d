//! `q1_0` for AVX-512: blocks of 18 bytes, a scale and 128 signs.

use super::bytes::{Bytes, empty, halves_for_two};
use super::one::{self, PAIRS, Packed, Pairs, Picks, Sums, cut, gather, halves, picks, words_at};
use super::vbmi::multishift;
use super::*;
use crate::kernels::format::Format;
use crate::kernels::matmul::Quad;

/// Two blocks of 18 bytes.
struct Q1_0;

impl Format for Q1_0 {
    const CHUNK_BYTES: usize = 36;
    const BIAS: i32 = 1;
    const TOP: i32 = 2;
}

blocks!(SOME: "q1_0", Q1_0, load_pair);

/// The kernels of this encoding.
pub const BLOCKS: Blocks = with_one!(SOME, Q1_0);

/// Two groups from 64 bits: where their first, and their last, sixteen bits are, one lower.
const fn bits(half: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = ((63 + i / 16 % 2 * 32 + 16 * half + i % 16) % 64) as u8;
        i += 1;
    }
    Bytes(table)
}

static FIRST: Bytes = bits(0);
static LAST: Bytes = bits(1);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 36], b: &[u8; 36]) -> Pair {
    let d = |row: &[u8; 36], block: usize| u16::from_le_bytes([row[18 * block], row[18 * block + 1]]);
    // Groups 0 to 3 have the first scale: places 0, 1 and 4, 5.
    let scales = |row: &[u8; 36]| [d(row, 0), d(row, 0), d(row, 1), d(row, 1)];
    let mut pair = empty([halves_for_two(scales(a), scales(b)); 2]);
    let (first, last, two) = (FIRST.get(), LAST.get(), _mm512_set1_epi8(2));
    for i in 0..4 {
        let at = 18 * (i / 2) + 2 + 8 * (i % 2);
        let bits = _mm512_mask_set1_epi64(_mm512_set1_epi64(bytes::eight(a, at)), 0xF0, bytes::eight(b, at));
        pair.low[i] = _mm512_and_si512(multishift(first, bits), two);
        pair.high[i] = _mm512_and_si512(multishift(last, bits), two);
    }
    pair
}

/// Two blocks' bits.
static BITS: Bytes = {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (18 * (i % 32 / 16) + 2 + i % 16) as u8;
        i += 1;
    }
    Bytes(table)
};

static SCALES: Bytes = words_at([0, 0, 0, 0, 18, 18, 18, 18]);

/// Bit `n` of each byte, twice what it is.
static TWICE: [Bytes; 8] = {
    let mut all = [Bytes([0; 64]); 8];
    let mut i = 0;
    while i < 64 {
        all[i / 8].0[8 * (i % 8) + 6] = 1 << (i / 8);
        i += 1;
    }
    all
};

/// A group is four bytes: bit `v` of each makes vector `v`.
impl Packed for Q1_0 {
    const BYTES: usize = 36;
    const READ: usize = 64;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &const {
        let mut numbers = [[0; 32]; 8];
        let mut i = 0;
        while i < 256 {
            numbers[i / 32][i % 32] = i % 32 * 8 + i / 32;
            i += 1;
        }
        picks(numbers)
    };
    const GROUPS: [usize; 8] = [0, 1, 2, 3, 4, 5, 6, 7];

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        let zero = _mm512_setzero_si512();
        let (mut bytes, mut bits) = ([[zero; 2]; PAIRS], [zero; PAIRS]);
        for (p, rows) in rows.iter().enumerate() {
            bytes[p] = [load(rows[0], 0), load(rows[1], 0)];
            bits[p] = gather(bytes[p][0], bytes[p][1], &BITS);
        }
        let mut dots = [[zero; PAIRS]; 2];
        for (v, twice) in TWICE.iter().enumerate() {
            let dots = &mut dots[v % 2];
            for p in 0..PAIRS {
                dots[p] = _mm512_dpbusd_epi32(dots[p], cut(bits[p], twice), one::codes(x, v));
            }
            *dots = one::in_step(*dots);
        }
        let mut sums = [Sums::ZERO; PAIRS];
        for p in 0..PAIRS {
            let dot = _mm512_add_epi32(dots[0][p], dots[1][p]);
            sums[p] = Sums::coarse(dot, halves(bytes[p][0], bytes[p][1], &SCALES));
        }
        sums
    }
}
