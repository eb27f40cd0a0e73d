//! Unpacked rows for AVX-512: the formats of every codec without a file of its own.

use super::*;
use crate::kernels::format::{Chunk, CoarseChunk, FineChunk};
use crate::kernels::matmul::Blocks;

/// Bytes of a chunk.
const BYTES: usize = size_of::<Chunk>();

/// Chunks with groups of 32.
pub const COARSE: Blocks = blocks_of!("unpacked, groups of 32", CoarseChunk, load_coarse);

/// Chunks with groups of 16.
pub const FINE: Blocks = blocks_of!("unpacked, groups of 16", FineChunk, load_fine);

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_codes(a: &[u8], b: &[u8]) -> Pair {
    let mut pair = Pair {
        low: [_mm512_setzero_si512(); 4],
        high: [_mm512_setzero_si512(); 4],
        scale: [_mm512_setzero_ps(); 2],
        offset: [_mm512_setzero_ps(); 2],
    };
    for i in 0..4 {
        pair.low[i] = join(half(a, 64 * i), half(b, 64 * i));
        pair.high[i] = join(half(a, 64 * i + 32), half(b, 64 * i + 32));
    }
    pair
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_coarse(a: &[u8; BYTES], b: &[u8; BYTES]) -> Pair {
    let floats = |at| _mm512_castsi512_ps(join(half(a, at), half(b, at)));
    Pair { scale: [floats(256); 2], offset: [floats(320); 2], ..load_codes(a, b) }
}

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_fine(a: &[u8; BYTES], b: &[u8; BYTES]) -> Pair {
    let floats = |at| _mm512_castsi512_ps(join(half(a, at), half(b, at)));
    Pair { scale: [floats(256), floats(288)], offset: [floats(320), floats(352)], ..load_codes(a, b) }
}
