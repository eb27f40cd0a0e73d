//! `iq4_nl` for AVX-512: blocks like those of `q4_0`, whose nibbles name levels.

use super::*;
use crate::kernels::formats::{Iq4Nl, LEVELS};

blocks!("iq4_nl", Iq4Nl, load_pair, HALVES, q4_0::raw, level, q4_0::scales);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 144], b: &[u8; 144]) -> Pair {
    let (packed, [scale, offset]) = (q4_0::nibbles(a, b), q4_0::scales(a, b));
    let (low, high) = (low4(packed), high4(packed));
    Pair { low: levels(low), high: levels(high), scale: [scale; 2], offset: [offset; 2] }
}

/// The levels that nibbles name, with 128 added.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn level(nibbles: __m512i) -> __m512i {
    // SAFETY: the reference covers the 16 bytes read, and `loadu` asks for no alignment.
    let table = _mm512_broadcast_i32x4(unsafe { _mm_loadu_si128(LEVELS.as_ptr().cast()) });
    _mm512_shuffle_epi8(table, nibbles)
}

/// The same for four vectors.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
pub fn levels(q: [__m512i; 4]) -> [__m512i; 4] {
    [level(q[0]), level(q[1]), level(q[2]), level(q[3])]
}
