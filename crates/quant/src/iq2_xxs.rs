//! `iq2_xxs`: 256 numbers, eight at a time from a grid of 256 points with signs, in eight sub-blocks.
//!
//! Block, 66 bytes, little-endian: `d: f16` at 0, then for each sub-block of 32 four grid indices of a byte and a `u32`
//! word: four sign indices of seven bits, and a scale in the top four. Number k of eight is
//! `d * (0.5 + scale) / 4 * grid[k]`, negated by its sign bit. Source: GGUF specification, tensor type 16.

use crate::fields::{f16_at, u32_at};
use crate::grids;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq2Xxs;

impl Codec for Iq2Xxs {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq2_xxs", block_len: 256, block_bytes: 66, gguf: Some(16) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 0);
        let parts = out.groups.iter_mut().zip(out.codes.chunks_exact_mut(32)).zip(block[2..].chunks_exact(8));
        for ((group, codes), part) in parts {
            let word = u32_at(part, 4);
            *group = Group::symmetric(d * (0.5 + (word >> 28) as f32) * 0.25);
            for (l, codes) in codes.chunks_exact_mut(8).enumerate() {
                grids::put(&grids::IQ2_XXS[usize::from(part[l])], grids::even_signs(word >> (7 * l)), codes);
            }
        }
    }
}
