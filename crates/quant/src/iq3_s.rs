//! `iq3_s`: 256 numbers, four at a time from a grid of 512 points with free signs, in eight sub-blocks.
//!
//! Block, 110 bytes, little-endian: `d: f16` at 0, `qs: [u8; 64]` at 2, `qh: [u8; 8]` at 66, `signs: [u8; 32]` at 74,
//! `scales: [u8; 4]` at 106. Group g of four numbers has grid index `qs[g]` with bit 8 at g % 8 of `qh[g / 8]`; sub-block
//! b has nibble b % 2 of `scales[b / 2]`. Each number is `d * (1 + 2 * scale) * grid[k]`, negated by its sign bit.
//! Source: GGUF specification, tensor type 21.

use crate::fields::f16_at;
use crate::grids;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq3S;

impl Codec for Iq3S {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq3_s", block_len: 256, block_bytes: 110, gguf: Some(21) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 0);
        for (b, group) in out.groups.iter_mut().enumerate() {
            let scale = block[106 + b / 2] >> (4 * (b % 2)) & 15;
            *group = Group::symmetric(d * f32::from(1 + 2 * scale));
        }
        for (g, codes) in out.codes.chunks_exact_mut(4).enumerate() {
            let high = usize::from(block[66 + g / 8] >> (g % 8) & 1);
            let index = usize::from(block[2 + g]) | high << 8;
            let signs = grids::signs(block[74 + g / 2]);
            grids::put(&grids::IQ3_S[index], &signs[g % 2 * 4..][..4], codes);
        }
    }
}
