//! Numbers of two bits in order: blocks of a half-precision scale and 64 (`q2_0`) or 128 (`pq2_0`) of them.

use super::bytes::{Bytes, empty, halves_for_two};
use super::vbmi::multishift;
use super::*;
use crate::kernels::format::Format;
use crate::kernels::formats::Q2_0;

/// Two blocks of 34 bytes.
struct Pq2_0;

impl Format for Pq2_0 {
    const CHUNK_BYTES: usize = 68;
    const BIAS: i32 = 1;
    const TOP: i32 = 3;
}

blocks!(Q2_0_BLOCKS: "q2_0", Q2_0, load_pair::<64, 72>);
blocks!(PQ2_0_BLOCKS: "pq2_0", Pq2_0, load_pair::<128, 68>);

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
