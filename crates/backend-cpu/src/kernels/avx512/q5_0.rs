//! `q5_0` for AVX-512: blocks of 22 bytes, a scale, 32 fifth bits and 16 bytes of half-split nibbles.

use super::*;
use crate::kernels::expand::Q5_0;

blocks!("q5_0", Q5_0, load_pair);

/// Blocks 0 and 1 of what is loaded, and the same when loading starts 20 bytes early.
static HALVES: Words = two_halves(6, 28);
static LAST_HALVES: Words = two_halves(26, 48);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8], b: &[u8]) -> Pair {
    let (halves, last) = (HALVES.get(), LAST_HALVES.get());
    let packed = [
        _mm512_permutex2var_epi16(load(a, 0), halves, load(b, 0)),
        _mm512_permutex2var_epi16(load(a, 44), halves, load(b, 44)),
        _mm512_permutex2var_epi16(load(a, 88), halves, load(b, 88)),
        _mm512_permutex2var_epi16(load(a, 112), last, load(b, 112)),
    ];
    let (mut low, mut high) = (low4(packed), high4(packed));
    let sixteen = _mm512_set1_epi8(16);
    for i in 0..4 {
        let (a, b) = (fifth_bits(a, i), fifth_bits(b, i));
        low[i] = _mm512_mask_add_epi8(low[i], a[0] | b[0] << 32, low[i], sixteen);
        high[i] = _mm512_mask_add_epi8(high[i], a[1] | b[1] << 32, high[i], sixteen);
    }
    Pair { low, high, scale: [halves_at::<22>(a, b, 0); 2], offset: [_mm512_setzero_ps(); 2] }
}

/// The bits of the first and of the last 16 numbers of blocks `2i` and `2i + 1`.
#[inline(always)]
fn fifth_bits(row: &[u8], i: usize) -> [u64; 2] {
    let word = |at: usize| u32::from_le_bytes(*row[at..].first_chunk().expect("four bytes of bits"));
    let (even, odd) = (word(44 * i + 2), word(44 * i + 24));
    [u64::from(even & 0xFFFF | odd << 16), u64::from(even >> 16 | odd & 0xFFFF_0000)]
}
