//! `i8`: 32 signed bytes that are the numbers themselves; a scale for a row or for all is another tensor.
//!
//! Source: compressed-tensors, formats `int-quantized` and `naive-quantized`.

use crate::fields::signed_bytes;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct I8;

impl Codec for I8 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "i8", block_len: 32, block_bytes: 32, gguf: None }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(1.0);
        signed_bytes(block, out.codes);
    }
}
