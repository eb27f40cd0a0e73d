//! Numbers of two bits in order: blocks of a half-precision scale and 64 (`q2_0`) or 128 (`pq2_0`) of them.

use super::bytes::{Bytes, empty, halves_for_two};
use super::one::{
    self, PAIRS, PLANES, Packed, Pairs, Picks, Sums, cut, fold, gather, halves, picks, words_at,
};
use super::vbmi::multishift;
use super::*;
use crate::kernels::format::Format;
use crate::kernels::formats::Q2_0;
use crate::kernels::matmul::Quad;

/// Two blocks of 34 bytes.
struct Pq2_0;

impl Format for Pq2_0 {
    const CHUNK_BYTES: usize = 68;
    const BIAS: i32 = 1;
    const TOP: i32 = 3;
}

blocks!(SOME_Q2_0: "q2_0", Q2_0, load_pair::<64, 72>);
blocks!(SOME_PQ2_0: "pq2_0", Pq2_0, load_pair::<128, 68>);

/// The kernels of `q2_0`.
pub const Q2_0_BLOCKS: Blocks = with_one!(SOME_Q2_0, Q2_0);

/// The kernels of `pq2_0`.
pub const PQ2_0_BLOCKS: Blocks = with_one!(SOME_PQ2_0, Pq2_0);

/// A group in 64 bits: where its first, and its last, sixteen numbers are.
const fn numbers(half: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (32 * half + 2 * (i % 16)) as u8;
        i += 1;
    }
    Bytes(table)
}

static FIRST: Bytes = numbers(0);
static LAST: Bytes = numbers(1);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair<const BLOCK: usize, const BYTES: usize>(a: &[u8; BYTES], b: &[u8; BYTES]) -> Pair {
    let block_bytes = 2 + BLOCK / 4;
    let d = |row: &[u8; BYTES], i: usize| {
        let at = 64 * i / BLOCK * block_bytes;
        u16::from_le_bytes([row[at], row[at + 1]])
    };
    let scales = |row: &[u8; BYTES]| [d(row, 0), d(row, 1), d(row, 2), d(row, 3)];
    let mut pair = empty([halves_for_two(scales(a), scales(b)); 2]);
    let (first, last, three) = (FIRST.get(), LAST.get(), _mm512_set1_epi8(3));
    for i in 0..4 {
        let at = 64 * i / BLOCK * block_bytes + 2 + 64 * i % BLOCK / 4;
        // Eight bytes a group, each twice.
        let both =
            _mm512_inserti32x4::<2>(_mm512_castsi128_si512(bytes::sixteen(a, at)), bytes::sixteen(b, at));
        let both = _mm512_permutex_epi64::<0b01_01_00_00>(both);
        pair.low[i] = _mm512_and_si512(multishift(first, both), three);
        pair.high[i] = _mm512_and_si512(multishift(last, both), three);
    }
    pair
}

/// A group is eight bytes: two bits of each of 32 bytes make a vector, four of these four groups.
const IN_ORDER: Picks = {
    let mut numbers = [[0; 32]; 8];
    let mut i = 0;
    while i < 256 {
        numbers[i / 32][i % 32] = 128 * (i / 128) + 4 * (i % 32) + i / 32 % 4;
        i += 1;
    }
    picks(numbers)
};

/// Groups of which [`in_order`] leaves the sums in each lane.
const GROUPS: [usize; 8] = [0, 1, 4, 5, 2, 3, 6, 7];

/// Multiplies the packed codes of groups 0 to 3, and 4 to 7, of pairs of rows.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
fn in_order(packed: [[__m512i; 2]; PAIRS], x: &[Quad], scale: [__m512; PAIRS]) -> [Sums; PAIRS] {
    let mut dots = [[_mm512_setzero_si512(); PAIRS]; 2];
    for (v, cuts) in PLANES.iter().enumerate() {
        for (n, dots) in dots.iter_mut().enumerate() {
            for p in 0..PAIRS {
                dots[p] = _mm512_dpbusd_epi32(dots[p], cut(packed[p][n], cuts), one::codes(x, 4 * n + v));
            }
            *dots = one::in_step(*dots);
        }
    }
    let mut sums = [Sums::ZERO; PAIRS];
    for p in 0..PAIRS {
        sums[p] = Sums::coarse(fold(dots[0][p], dots[1][p]), scale[p]);
    }
    sums
}

/// The bytes of two blocks of 18 bytes, `at` the codes of the first.
const fn two_blocks(at: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (at + 18 * (i % 32 / 16) + i % 16) as u8;
        i += 1;
    }
    Bytes(table)
}

impl Packed for Q2_0 {
    const BYTES: usize = 72;
    const READ: usize = 72;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &IN_ORDER;
    const GROUPS: [usize; 8] = GROUPS;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        static FIRST: Bytes = two_blocks(2);
        // Of what is loaded eight bytes later.
        static LAST: Bytes = two_blocks(38 - 8);
        static SCALES: Bytes = words_at([0, 0, 36, 36, 18, 18, 54, 54]);
        let (mut packed, mut scale) = ([[_mm512_setzero_si512(); 2]; PAIRS], [_mm512_setzero_ps(); PAIRS]);
        for (p, [a, b]) in rows.iter().enumerate() {
            let starts = [load(a, 0), load(b, 0)];
            packed[p] = [gather(starts[0], starts[1], &FIRST), gather(load(a, 8), load(b, 8), &LAST)];
            scale[p] = halves(starts[0], starts[1], &SCALES);
        }
        in_order(packed, x, scale)
    }
}

impl Packed for Pq2_0 {
    const BYTES: usize = 68;
    const READ: usize = 68;
    const BIAS: i32 = 1;
    const PICKS: &'static Picks = &IN_ORDER;
    const GROUPS: [usize; 8] = GROUPS;

    #[inline]
    #[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,avx512vbmi,gfni")]
    unsafe fn sums(rows: &Pairs<'_>, x: &[Quad]) -> [Sums; PAIRS] {
        static SCALES: Bytes = words_at([0, 0, 34, 34, 0, 0, 34, 34]);
        let (mut packed, mut scale) = ([[_mm512_setzero_si512(); 2]; PAIRS], [_mm512_setzero_ps(); PAIRS]);
        for (p, [a, b]) in rows.iter().enumerate() {
            packed[p] = [join(half(a, 2), half(b, 2)), join(half(a, 36), half(b, 36))];
            scale[p] = halves(load(a, 0), load(b, 0), &SCALES);
        }
        in_order(packed, x, scale)
    }
}
