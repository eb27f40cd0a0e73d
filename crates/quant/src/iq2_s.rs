//! `iq2_s`: 256 numbers, eight at a time from a grid of 1024 points with free signs, in 16 sub-blocks.
//!
//! Block, 82 bytes, little-endian: `d: f16` at 0, `qs: [u8; 32]` at 2, `signs: [u8; 32]` at 34, `qh: [u8; 8]` at 66,
//! `scales: [u8; 8]` at 74. Group g of eight numbers has grid index `qs[g]` with bits 8 and 9 at 2(g % 4) of `qh[g / 4]`;
//! two groups share the next nibble of `scales`, low ones first. Number k of eight is `d * (0.5 + scale) / 4 * grid[k]`,
//! negated by its sign bit. Source: GGUF specification, tensor type 22.

use crate::fields::{bytes, f16_at};
use crate::grids;
use crate::{Codec, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq2S;

impl Codec for Iq2S {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq2_s", block_len: 256, block_bytes: 82, gguf: Some(22) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 16>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 0);
        grids::quarter_scales(d, bytes(block, 74), out.groups);
        for (g, codes) in out.codes.chunks_exact_mut(8).enumerate() {
            let high = usize::from(block[66 + g / 4] >> (2 * (g % 4)) & 3);
            let index = usize::from(block[2 + g]) | high << 8;
            grids::put(&grids::IQ2_S[index], grids::signs(block[34 + g]), codes);
        }
    }
}
