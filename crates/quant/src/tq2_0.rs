//! `tq2_0`: 256 ternary numbers of two bits under one half-precision scale.
//!
//! Block, 66 bytes, little-endian: `qs: [u8; 64]` at 0, `d: f16` at 64. Number 128n + 32j + l is bits 2j and 2j + 1 of
//! `qs[32n + l]`; each is `(q - 1) * d`, so code 3, which ternary files do not use, is +2d.
//! Source: GGUF specification, tensor type 35.

use crate::fields::{bytes, f16_at, planes2, put_f16, put_planes2};
use crate::trits;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Tq2_0;

impl Codec for Tq2_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "tq2_0", block_len: 256, block_bytes: 66, gguf: Some(35) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.fill(Group::symmetric(f16_at(block, 64)));
        for (code, q) in out.codes.iter_mut().zip(planes2(bytes(block, 0))) {
            *code = q as i8 - 1;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Tq2_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(256).zip(out.chunks_exact_mut(66)) {
            let mut digits = [0; 256];
            put_f16(block, 64, trits::quantize(x, &mut digits));
            put_planes2(&digits, &mut block[..64]);
        }
    }
}
