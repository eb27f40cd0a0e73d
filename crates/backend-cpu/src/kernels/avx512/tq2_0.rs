//! `tq2_0` for AVX-512: planes of two bits under one scale.

use super::*;
use crate::kernels::expand::Tq2_0;

blocks!("tq2_0", Tq2_0, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8], b: &[u8]) -> Pair {
    let head = |block: &[u8]| i32::from(u16::from_le_bytes([block[64], block[65]]));
    let halves = _mm512_castps128_ps512(_mm_cvtph_ps(_mm_setr_epi32(head(a), head(b), 0, 0)));
    let row = _mm512_mask_blend_epi32(0xFF00, _mm512_setzero_si512(), _mm512_set1_epi32(2));
    let mut pair = Pair {
        low: [_mm512_setzero_si512(); 4],
        high: [_mm512_setzero_si512(); 4],
        scale: [_mm512_permutexvar_ps(row, halves); 2],
        offset: [_mm512_setzero_ps(); 2],
    };
    // Two bits further for the second of two groups.
    let odd = 0x0002_0002_0002_0002;
    let mask = _mm512_set1_epi8(3);
    for n in 0..2 {
        let both = join(half(a, 32 * n), half(b, 32 * n));
        let (first, last) = (_mm512_permutex_epi64::<0x44>(both), _mm512_permutex_epi64::<0xEE>(both));
        for plane in 0..2 {
            let base = odd * 2 * plane;
            let shift = _mm512_set4_epi64(base + odd, base + odd, base, base);
            let i = 2 * n + plane as usize;
            pair.low[i] = _mm512_and_si512(_mm512_srlv_epi16(first, shift), mask);
            pair.high[i] = _mm512_and_si512(_mm512_srlv_epi16(last, shift), mask);
        }
    }
    pair
}
