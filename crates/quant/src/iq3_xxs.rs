//! `iq3_xxs`: 256 numbers, four at a time from a grid of 256 points, with signs for each eight, in eight sub-blocks.
//!
//! Block, 98 bytes, little-endian: `d: f16` at 0, grid indices `qs: [u8; 64]` at 2, `words: [u32; 8]` at 66. The word of
//! a sub-block of 32 holds four sign indices of seven bits, and a scale in the top four. Each number is
//! `d * (0.5 + scale) / 2 * grid[k]`, negated by its sign bit. Source: GGUF specification, tensor type 18.

use crate::fields::{f16_at, u32_at};
use crate::grids;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq3Xxs;

impl Codec for Iq3Xxs {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq3_xxs", block_len: 256, block_bytes: 98, gguf: Some(18) }
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
            let word = u32_at(block, 66 + 4 * b);
            *group = Group::symmetric(d * (0.5 + (word >> 28) as f32) * 0.5);
            let indices = block[2 + 8 * b..].chunks_exact(2);
            for (l, (codes, index)) in codes.chunks_exact_mut(8).zip(indices).enumerate() {
                let signs = grids::even_signs(word >> (7 * l));
                grids::put(&grids::IQ3_XXS[usize::from(index[0])], &signs[..4], &mut codes[..4]);
                grids::put(&grids::IQ3_XXS[usize::from(index[1])], &signs[4..], &mut codes[4..]);
            }
        }
    }
}
