//! `q8_0`: 32 numbers as signed bytes under one half-precision scale.
//!
//! Block, 34 bytes, little-endian: `d: f16` at 0, `q: [i8; 32]` at 2. Number i is `d * q[i]`.
//! Source: GGUF specification, tensor type 8.

use crate::{Codec, Encode, Group, Kind, Spec, Unpacked};
use half::f16;

/// The codec.
pub struct Q8_0;

impl Codec for Q8_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q8_0", block_len: 32, block_bytes: 34, gguf: Some(8) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        let (d, q) = block.split_at(2);
        let d = f16::from_le_bytes([d[0], d[1]]).to_f32();
        for (out, &q) in out.iter_mut().zip(q) {
            *out = d * f32::from(q as i8);
        }
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (d, q) = block.split_at(2);
        out.groups[0] = Group { scale: f16::from_le_bytes([d[0], d[1]]).to_f32(), offset: 0.0 };
        for (code, &q) in out.codes.iter_mut().zip(q) {
            *code = q as i8;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q8_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(32).zip(out.chunks_exact_mut(34)) {
            let max = x.iter().fold(0.0f32, |max, x| max.max(x.abs()));
            let d = max / 127.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
            for (q, x) in block[2..].iter_mut().zip(x) {
                *q = (x * inverse).round() as i8 as u8;
            }
        }
    }
}
