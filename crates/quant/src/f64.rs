//! `f64`: double precision, read as the nearest single. Source: GGUF specification, tensor type 28.

use crate::fields::bytes;
use crate::{Codec, Encode, Kind, Spec};

/// The codec.
pub struct F64;

impl Codec for F64 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "f64", block_len: 1, block_bytes: 8, gguf: Some(28) }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        out[0] = f64::from_le_bytes(*bytes(block, 0)) as f32;
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for F64 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (&x, block) in row.iter().zip(out.chunks_exact_mut(8)) {
            block.copy_from_slice(&f64::from(x).to_le_bytes());
        }
    }
}
