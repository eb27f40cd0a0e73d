//! `bf16`: the upper half of a single-precision number. Written to the nearest, ties to even.
//! Source: GGUF specification, tensor type 30.

use crate::fields::bytes;
use crate::{Codec, Encode, Kind, Spec};
use half::bf16;

/// The codec.
pub struct Bf16;

impl Codec for Bf16 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "bf16", block_len: 1, block_bytes: 2, gguf: Some(30) }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        out[0] = bf16::from_le_bytes(*bytes(block, 0)).to_f32();
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Bf16 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (&x, block) in row.iter().zip(out.chunks_exact_mut(2)) {
            block.copy_from_slice(&bf16::from_f32(x).to_le_bytes());
        }
    }
}
