//! `q8_1` for AVX-512: blocks of 36 bytes, a half-precision scale, a sum, and 32 signed bytes.

use super::bytes::empty;
use super::*;
use crate::kernels::format::Format;

/// Eight blocks of 36 bytes.
struct Q8_1;

impl Format for Q8_1 {
    const CHUNK_BYTES: usize = 288;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;
}

blocks!("q8_1", Q8_1, load_pair);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 288], b: &[u8; 288]) -> Pair {
    let mut pair = empty([halves_at::<36>(a, b, 0); 2]);
    q8_0::signed_bytes::<36>(&a[4..], &b[4..], &mut pair);
    pair
}
