//! Unpacked rows for NEON: the formats of every codec without a file of its own.

use super::*;

impl Load for CoarseChunk {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        codes(chunk, I)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        sides(chunk)
    }
}

impl Load for FineChunk {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        codes(chunk, I)
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        sides(chunk)
    }
}

/// Codes are stored with 128 added, in the order in which they are wanted.
#[inline]
#[target_feature(enable = "neon")]
fn codes(chunk: &[u8], i: usize) -> [int8x16_t; 4] {
    signed(std::array::from_fn(|v| veorq_u8(load(chunk, 64 * i + 16 * v), vdupq_n_u8(128))))
}

#[inline]
#[target_feature(enable = "neon")]
fn sides(chunk: &[u8]) -> Sides {
    let floats = |at| vreinterpretq_f32_u8(load(chunk, at));
    Sides {
        scale: std::array::from_fn(|i| floats(256 + 16 * i)),
        offset: std::array::from_fn(|i| floats(320 + 16 * i)),
    }
}
