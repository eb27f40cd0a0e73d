//! `q8_0`: 32 numbers as signed bytes under one half-precision scale.
//!
//! Block, 34 bytes, little-endian: `d: f16` at 0, `q: [i8; 32]` at 2. Number i is `d * q[i]`.
//! Source: GGUF specification, tensor type 8.

use crate::fields::{f16_at, put_f16, signed_bytes};
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

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
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f16_at(block, 0));
        signed_bytes(&block[2..], out.codes);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q8_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(32).zip(out.chunks_exact_mut(34)) {
            let d = search::magnitude(x) / 127.0;
            let inverse = search::inverse(d);
            put_f16(block, 0, d);
            for (q, x) in block[2..].iter_mut().zip(x) {
                *q = (x * inverse).round() as i8 as u8;
            }
        }
    }
}
