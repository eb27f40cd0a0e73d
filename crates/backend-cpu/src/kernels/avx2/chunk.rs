//! Unpacked rows for AVX2: the formats of every codec without a file of its own.

use super::*;
use crate::kernels::format::{CoarseChunk, FineChunk};

blocks!(COARSE: "unpacked, groups of 32", CoarseChunk, load_chunk);
blocks!(FINE: "unpacked, groups of 16", FineChunk, load_chunk);

#[inline]
#[target_feature(enable = "avx2,fma,f16c")]
fn load_chunk(chunk: &[u8]) -> Wide {
    let floats = |at| _mm256_castsi256_ps(load(chunk, at));
    let mut wide = empty([floats(256), floats(288)]);
    wide.offset = [floats(320), floats(352)];
    let sign = _mm256_set1_epi8(-128);
    for i in 0..4 {
        wide.low[i] = _mm256_xor_si256(load(chunk, 64 * i), sign);
        wide.high[i] = _mm256_xor_si256(load(chunk, 64 * i + 32), sign);
    }
    wide
}
