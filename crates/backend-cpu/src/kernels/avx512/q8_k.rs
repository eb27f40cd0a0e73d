//! `q8_k` for AVX-512: 256 signed bytes under one single-precision scale.

use super::bytes::empty;
use super::*;
use crate::kernels::format::Format;

/// One block.
struct Q8K;

impl Format for Q8K {
    const CHUNK_BYTES: usize = 292;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;
}

blocks!("q8_k", Q8K, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 292], b: &[u8; 292]) -> Pair {
    let d = |block: &[u8]| f32::from_le_bytes(*block.first_chunk().expect("a block has a scale"));
    let scale = _mm512_mask_blend_ps(0xFF00, _mm512_set1_ps(d(a)), _mm512_set1_ps(d(b)));
    let mut pair = empty([scale; 2]);
    q8_0::signed_bytes::<32>(&a[4..260], &b[4..260], &mut pair);
    pair
}
