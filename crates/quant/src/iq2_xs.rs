//! `iq2_xs`: 256 numbers, eight at a time from a grid of 512 points with signs, in 16 sub-blocks.
//!
//! Block, 74 bytes, little-endian: `d: f16` at 0, `qs: [u16; 32]` at 2, `scales: [u8; 8]` at 66. Eight numbers have their
//! grid index in the low nine bits of a `q`, their sign index in the high seven; two such groups share the next nibble
//! of `scales`, low ones first. Number k of eight is `d * (0.5 + scale) / 4 * grid[k]`, negated by its sign bit.
//! Source: GGUF specification, tensor type 17.

use crate::fields::{bytes, f16_at, u16_at};
use crate::grids;
use crate::{Codec, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq2Xs;

impl Codec for Iq2Xs {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq2_xs", block_len: 256, block_bytes: 74, gguf: Some(17) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 16>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 0);
        grids::quarter_scales(d, bytes(block, 66), out.groups);
        for (g, codes) in out.codes.chunks_exact_mut(8).enumerate() {
            let q = u16_at(block, 2 + 2 * g);
            grids::put(&grids::IQ2_XS[usize::from(q & 511)], grids::even_signs(u32::from(q >> 9)), codes);
        }
    }
}
