//! `q5_k` for NEON: blocks of 176 bytes, a header (see [`k_scales`]), 32 bytes of fifth bits, whose bit `b` belongs to
//! group `b`, and 128 bytes of four-bit planes.

use super::q4_k::planes4;
use super::*;

impl Load for Q5K {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        let (first, last) = (load(chunk, 16), load(chunk, 32));
        let [a, b] = [vdupq_n_u8(1 << (2 * I)), vdupq_n_u8(2 << (2 * I))];
        let fifth = |bits, of| vandq_u8(vtstq_u8(bits, of), vdupq_n_u8(16));
        let low = planes4(chunk, 48 + 32 * I);
        signed([
            vorrq_u8(low[0], fifth(first, a)),
            vorrq_u8(low[1], fifth(first, b)),
            vorrq_u8(low[2], fifth(last, a)),
            vorrq_u8(low[3], fifth(last, b)),
        ])
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        k_scales::sides(chunk)
    }
}
