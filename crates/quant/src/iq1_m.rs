//! `iq1_m`: 256 numbers, eight at a time from a ternary grid of 2048 points, each eight with its own shift, in 16
//! sub-blocks.
//!
//! Block, 56 bytes, little-endian: `qs: [u8; 32]` at 0, `qh: [u8; 16]` at 32, `s: [u16; 4]` at 48. The top nibbles of `s`
//! are the half-precision `d`, lowest first. Group g of eight numbers has grid index `qs[g]` with bits 8 to 10 in nibble
//! g % 2 of `qh[g / 2]`; the fourth bit says that the shift is -1/8 rather than +1/8. Sub-block t has three bits at
//! 3(t % 4) of `s[t / 4]`. Each number is `d * (2 * scale + 1) * (grid[k] + shift)`.
//! In integers: eighths, `8 * grid[k]` plus or minus 1. Source: GGUF specification, tensor type 29.

use crate::fields::u16_at;
use crate::grids;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};
use half::f16;

/// The codec.
pub struct Iq1M;

impl Codec for Iq1M {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq1_m", block_len: 256, block_bytes: 56, gguf: Some(29) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 16>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let s: [u16; 4] = std::array::from_fn(|i| u16_at(block, 48 + 2 * i));
        let d = f16::from_bits((0..4).fold(0, |bits, i| bits | s[i] >> 12 << (4 * i))).to_f32();
        for (t, group) in out.groups.iter_mut().enumerate() {
            let scale = s[t / 4] >> (3 * (t % 4)) & 7;
            *group = Group::symmetric(d * f32::from(2 * scale + 1) * 0.125);
        }
        for (g, codes) in out.codes.chunks_exact_mut(8).enumerate() {
            let high = u16::from(block[32 + g / 2] >> (4 * (g % 2)) & 15);
            let shift = if high & 8 == 0 { 1 } else { -1 };
            grids::put_eighths(u16::from(block[g]) | (high & 7) << 8, shift, codes);
        }
    }
}
