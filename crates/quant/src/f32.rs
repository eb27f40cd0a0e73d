//! `f32`: single precision, as it is. Source: GGUF specification, tensor type 0.

use crate::fields::bytes;
use crate::{Codec, Encode, Kind, Spec};

/// The codec.
pub struct F32;

impl Codec for F32 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "f32", block_len: 1, block_bytes: 4, gguf: Some(0) }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        out[0] = f32::from_le_bytes(*bytes(block, 0));
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for F32 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.iter().zip(out.chunks_exact_mut(4)) {
            block.copy_from_slice(&x.to_le_bytes());
        }
    }
}
