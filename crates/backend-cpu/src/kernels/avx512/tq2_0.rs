//! `tq2_0` for AVX-512: planes of two bits under one scale.

use super::bytes::{empty, heads};
use super::*;
use crate::kernels::formats::Tq2_0;

blocks!("tq2_0", Tq2_0, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 66], b: &[u8; 66]) -> Pair {
    let mut pair = empty([heads(a, b, 64); 2]);
    planes(&a[..64], &b[..64], &mut pair);
    pair
}

/// Planes of two bits: 32 bytes hold four groups of 32.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn planes(a: &[u8], b: &[u8], pair: &mut Pair) {
    let (a, b) = (load(a, 0), load(b, 0));
    for n in 0..2 {
        let both = if n == 0 {
            _mm512_shuffle_i64x2::<0b01_00_01_00>(a, b)
        } else {
            _mm512_shuffle_i64x2::<0b11_10_11_10>(a, b)
        };
        planes_of(both, n, pair);
    }
}

/// Groups `4n` to `4n + 3` of two rows from 32 bytes of each.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn planes_of(both: __m512i, n: usize, pair: &mut Pair) {
    spread::<false>(both, n, pair);
}

/// The same; with `FALLING`, the first group lies in the highest bits.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn spread<const FALLING: bool>(both: __m512i, n: usize, pair: &mut Pair) {
    // Two bits further for the second of two groups.
    let two = 0x0002_0002_0002_0002;
    let mask = _mm512_set1_epi8(3);
    let (first, last) = (_mm512_permutex_epi64::<0x44>(both), _mm512_permutex_epi64::<0xEE>(both));
    for plane in 0..2 {
        let (even, odd) = (two * 2 * plane, two * (2 * plane + 1));
        let (even, odd) = if FALLING { (two * 3 - even, two * 3 - odd) } else { (even, odd) };
        let shift = _mm512_set4_epi64(odd, odd, even, even);
        let i = 2 * n + plane as usize;
        pair.low[i] = _mm512_and_si512(_mm512_srlv_epi16(first, shift), mask);
        pair.high[i] = _mm512_and_si512(_mm512_srlv_epi16(last, shift), mask);
    }
}
