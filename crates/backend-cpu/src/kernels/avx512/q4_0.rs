//! `q4_0` for AVX-512: blocks of 18 bytes, a half-precision scale and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q4_0;

blocks!("q4_0", Q4_0, load_pair, HALVES, raw, same, scales);

/// Blocks 0 and 1 of what is loaded, and the same when loading starts 28 bytes early.
static HALVES: Words = two_halves(2, 20);
static LAST_HALVES: Words = two_halves(30, 48);
static SCALES: Words = {
    let mut table = [0; 32];
    let mut place = 0;
    while place < 8 {
        let group = super::super::activations::COARSE_ORDER[place];
        table[place] = (group / 4 * 32 + group % 4 * 9) as u16;
        place += 1;
    }
    words(table)
};

/// The half-precision scales of eight blocks of 18 bytes of two rows, and no offsets.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn scales(a: &[u8], b: &[u8]) -> [__m512; 2] {
    let (a, b) = ([load(a, 0), load(a, 72)], [load(b, 0), load(b, 72)]);
    [picked_halves(&SCALES, a, b), _mm512_setzero_ps()]
}

/// Vector `i` of four of the nibbles of eight blocks of 18 bytes of two rows, each still with its other half.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn raw(a: &[u8], b: &[u8], i: usize) -> __m512i {
    let (at, pick) = if i < 3 { (36 * i, &HALVES) } else { (80, &LAST_HALVES) };
    _mm512_permutex2var_epi16(load(a, at), pick.get(), load(b, at))
}

/// All four of them.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn nibbles(a: &[u8], b: &[u8]) -> [__m512i; 4] {
    [raw(a, b, 0), raw(a, b, 1), raw(a, b, 2), raw(a, b, 3)]
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 144], b: &[u8; 144]) -> Pair {
    let (packed, [scale, offset]) = (nibbles(a, b), scales(a, b));
    Pair { low: low4(packed), high: high4(packed), scale: [scale; 2], offset: [offset; 2] }
}
