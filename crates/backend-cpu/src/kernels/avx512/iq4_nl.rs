//! `iq4_nl` for AVX-512: blocks like those of `q4_0`, whose nibbles name levels.

use super::*;
use crate::kernels::formats::{Iq4Nl, LEVELS};

blocks!("iq4_nl", Iq4Nl, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 144], b: &[u8; 144]) -> Pair {
    let (packed, scale) = q4_0::nibbles(a, b);
    let (low, high) = (low4(packed), high4(packed));
    Pair { low: levels(low), high: levels(high), scale: [scale; 2], offset: [_mm512_setzero_ps(); 2] }
}

/// The levels that nibbles name, with 128 added.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn levels(q: [__m512i; 4]) -> [__m512i; 4] {
    // SAFETY: the reference covers the 16 bytes read, and `loadu` asks for no alignment.
    let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(LEVELS.as_ptr().cast()) });
    [
        _mm512_shuffle_epi8(table, q[0]),
        _mm512_shuffle_epi8(table, q[1]),
        _mm512_shuffle_epi8(table, q[2]),
        _mm512_shuffle_epi8(table, q[3]),
    ]
}
