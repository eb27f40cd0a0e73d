//! `q4_1` for AVX-512: blocks of 20 bytes, a scale, a minimum and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q4_1;

blocks!("q4_1", Q4_1, load_pair, HALVES, raw, same, scales);

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
    let packed = [raw(a, b, 0), raw(a, b, 1), raw(a, b, 2), raw(a, b, 3)];
    let [scale, offset] = scales(a, b);
    Pair { low: low4(packed), high: high4(packed), scale: [scale; 2], offset: [offset; 2] }
}

/// Vector `i` of four of packed nibbles, each still with its other half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn raw(a: &[u8], b: &[u8], i: usize) -> __m512i {
    let (at, pick) = if i < 3 { (40 * i, &HALVES) } else { (96, &LAST_HALVES) };
    _mm512_permutex2var_epi16(load(a, at), pick.get(), load(b, at))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let (a, b) = ([load(a, 0), load(a, 80)], [load(b, 0), load(b, 80)]);
    [picked_halves(&SCALES, a, b), picked_halves(&MINIMUMS, a, b)]
}
