//! `q4_1` for AVX-512: blocks of 20 bytes, a scale, a minimum and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q4_1;

blocks!("q4_1", Q4_1, load_pair);

/// Blocks 0 and 1 of what is loaded, and the same when loading starts 24 bytes early.
static HALVES: Words = two_halves(4, 24);
static LAST_HALVES: Words = two_halves(28, 48);

/// Where the scales of eight blocks of 20 bytes lie, in two vectors loaded at 0 and at 80, in `COARSE_ORDER`.
static SCALES: Words = every_tenth(0);
/// The same for the minimums.
static MINIMUMS: Words = every_tenth(1);

const fn every_tenth(first: usize) -> Words {
    let mut table = [0; 32];
    let mut place = 0;
    while place < 8 {
        let group = super::super::activations::COARSE_ORDER[place];
        table[place] = (group / 4 * 32 + group % 4 * 10 + first) as u16;
        place += 1;
    }
    words(table)
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 160], b: &[u8; 160]) -> Pair {
    let (halves, last) = (HALVES.get(), LAST_HALVES.get());
    let (a0, b0, a2, b2) = (load(a, 0), load(b, 0), load(a, 80), load(b, 80));
    let packed = [
        _mm512_permutex2var_epi16(a0, halves, b0),
        _mm512_permutex2var_epi16(load(a, 40), halves, load(b, 40)),
        _mm512_permutex2var_epi16(a2, halves, b2),
        _mm512_permutex2var_epi16(load(a, 96), last, load(b, 96)),
    ];
    Pair {
        low: low4(packed),
        high: high4(packed),
        scale: [picked_halves(&SCALES, [a0, a2], [b0, b2]); 2],
        offset: [picked_halves(&MINIMUMS, [a0, a2], [b0, b2]); 2],
    }
}
