//! `q4_0` for AVX-512: blocks of 18 bytes, a half-precision scale and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::formats::Q4_0;

blocks!("q4_0", Q4_0, load_pair);

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

/// The half-precision scales of eight blocks of 18 bytes, in two vectors loaded at 0 and at 72.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn scales(a: [__m512i; 2], b: [__m512i; 2]) -> __m512 {
    picked_halves(&SCALES, a, b)
}

/// The nibbles of eight blocks of 18 bytes of two rows, each still with its other half, and the scales.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn nibbles(a: &[u8], b: &[u8]) -> ([__m512i; 4], __m512) {
    let (halves, last) = (HALVES.get(), LAST_HALVES.get());
    let (a0, b0, a2, b2) = (load(a, 0), load(b, 0), load(a, 72), load(b, 72));
    let packed = [
        _mm512_permutex2var_epi16(a0, halves, b0),
        _mm512_permutex2var_epi16(load(a, 36), halves, load(b, 36)),
        _mm512_permutex2var_epi16(a2, halves, b2),
        _mm512_permutex2var_epi16(load(a, 80), last, load(b, 80)),
    ];
    (packed, scales([a0, a2], [b0, b2]))
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 144], b: &[u8; 144]) -> Pair {
    let (packed, scale) = nibbles(a, b);
    Pair { low: low4(packed), high: high4(packed), scale: [scale; 2], offset: [_mm512_setzero_ps(); 2] }
}
