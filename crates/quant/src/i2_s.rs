//! `i2_s`: 128 ternary numbers of two bits; one scale for the whole tensor is another tensor.
//!
//! Block, 32 bytes: byte g holds numbers g, g + 32, g + 64 and g + 96 in its bits 7-6, 5-4, 3-2 and 1-0. Codes 0, 1, 2
//! are -1, 0, 1; 3, which files do not use, is 0. Source: microsoft/BitNet, tensor type 36 of its GGUF files.

use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct I2S;

impl Codec for I2S {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "i2_s", block_len: 128, block_bytes: 32, gguf: Some(36) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<128, 4>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        const MEANING: [i8; 4] = [-1, 0, 1, 0];
        out.groups.fill(Group::symmetric(1.0));
        for (part, codes) in out.codes.chunks_exact_mut(32).enumerate() {
            for (code, byte) in codes.iter_mut().zip(block) {
                *code = MEANING[usize::from(byte >> (6 - 2 * part) & 3)];
            }
        }
    }
}
