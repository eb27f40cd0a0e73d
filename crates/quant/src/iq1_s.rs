//! `iq1_s`: 256 numbers, eight at a time from a ternary grid of 2048 points, in eight shifted sub-blocks.
//!
//! Block, 50 bytes, little-endian: `d: f16` at 0, `qs: [u8; 32]` at 2, `qh: [u16; 8]` at 34. Group l of eight numbers of
//! sub-block b has grid index `qs[4b + l]` with bits 8 to 10 at 3l of `qh[b]`; bits 12 to 14 are the scale, bit 15 says
//! that the shift is -1/8 rather than +1/8. Each number is `d * (2 * scale + 1) * (grid[k] + shift)`.
//! In integers: eighths, `8 * grid[k]` plus or minus 1. Source: GGUF specification, tensor type 19.

use crate::fields::{f16_at, u16_at};
use crate::grids;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq1S;

impl Codec for Iq1S {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq1_s", block_len: 256, block_bytes: 50, gguf: Some(19) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 0);
        for (b, (group, codes)) in out.groups.iter_mut().zip(out.codes.chunks_exact_mut(32)).enumerate() {
            let high = u16_at(block, 34 + 2 * b);
            *group = Group::symmetric(d * f32::from(2 * (high >> 12 & 7) + 1) * 0.125);
            let shift = if high >> 15 == 1 { -1 } else { 1 };
            for (l, codes) in codes.chunks_exact_mut(8).enumerate() {
                let index = u16::from(block[2 + 4 * b + l]) | (high >> (3 * l) & 7) << 8;
                grids::put_eighths(index, shift, codes);
            }
        }
    }
}
