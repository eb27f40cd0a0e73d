//! `q5_1` for AVX-512: blocks of 24 bytes, a scale, an offset, 32 fifth bits and 16 bytes of half-split nibbles.

use super::q5_0::{FiveBits, head};
use super::*;
use crate::kernels::formats::Q5_1;

blocks!("q5_1", Q5_1, load_pair);

static FIVE_BITS: FiveBits = FiveBits {
    step: 48,
    last: 128,
    nibbles: [two_halves(8, 32), two_halves(24, 48)],
    heads: [two_halves(0, 24), two_halves(16, 40)],
};

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 192], b: &[u8; 192]) -> Pair {
    let (heads, mut pair) = FIVE_BITS.codes::<4>(a, b);
    pair.scale = [head(0, heads); 2];
    pair.offset = [head(1, heads); 2];
    pair
}
