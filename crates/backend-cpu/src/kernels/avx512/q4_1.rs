//! `q4_1` for AVX-512: blocks of 20 bytes, a scale, a minimum and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::expand::Q4_1;

blocks!("q4_1", Q4_1, load_pair);

/// Blocks 0 and 1 of what is loaded, and the same when loading starts 24 bytes early.
static HALVES: Words = two_halves(4, 24);
static LAST_HALVES: Words = two_halves(28, 48);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8], b: &[u8]) -> Pair {
    let (halves, last) = (HALVES.get(), LAST_HALVES.get());
    let packed = [
        _mm512_permutex2var_epi16(load(a, 0), halves, load(b, 0)),
        _mm512_permutex2var_epi16(load(a, 40), halves, load(b, 40)),
        _mm512_permutex2var_epi16(load(a, 80), halves, load(b, 80)),
        _mm512_permutex2var_epi16(load(a, 96), last, load(b, 96)),
    ];
    Pair {
        low: low4(packed),
        high: high4(packed),
        scale: [halves_at::<20>(a, b, 0); 2],
        offset: [halves_at::<20>(a, b, 2); 2],
    }
}
