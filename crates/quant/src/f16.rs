//! `f16`: half precision (IEEE binary16). Written to the nearest, ties to even.
//! Source: GGUF specification, tensor type 1.

use crate::fields::bytes;
use crate::{Codec, Encode, Kind, Spec};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// The codec.
pub struct F16;

impl Codec for F16 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "f16", block_len: 1, block_bytes: 2, gguf: Some(1) }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        out[0] = f16::from_le_bytes(*bytes(block, 0)).to_f32();
    }

    fn decode_row(&self, row: &[u8], out: &mut [f32]) {
        // Many at a time, as the conversion first looks up what the processor can do.
        let mut halves = [f16::ZERO; 64];
        for (row, out) in row.chunks(2 * halves.len()).zip(out.chunks_mut(halves.len())) {
            let halves = &mut halves[..out.len()];
            for (half, bytes) in halves.iter_mut().zip(row.chunks_exact(2)) {
                *half = f16::from_le_bytes([bytes[0], bytes[1]]);
            }
            halves.convert_to_f32_slice(out);
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for F16 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (&x, block) in row.iter().zip(out.chunks_exact_mut(2)) {
            block.copy_from_slice(&f16::from_f32(x).to_le_bytes());
        }
    }
}
