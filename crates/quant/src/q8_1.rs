//! `q8_1`: 32 numbers as signed bytes under one half-precision scale, with their sum: a form for activations.
//!
//! Block, 36 bytes, little-endian: `d: f16` at 0, `s: f16` at 2 (`d` times the sum of `q`, not needed to decode),
//! `q: [i8; 32]` at 4. Number i is `d * q[i]`. Source: GGUF specification, tensor type 9.

use crate::fields::{f16_at, signed_bytes};
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q8_1;

impl Codec for Q8_1 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q8_1", block_len: 32, block_bytes: 36, gguf: Some(9) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f16_at(block, 0));
        signed_bytes(&block[4..], out.codes);
    }
}
