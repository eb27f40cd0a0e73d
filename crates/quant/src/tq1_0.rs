//! `tq1_0`: 256 ternary numbers, five in a byte, under one half-precision scale.
//!
//! Block, 54 bytes, little-endian: `qs: [u8; 48]` at 0, `qh: [u8; 4]` at 48, `d: f16` at 52. Number 32n + m is digit n of
//! `qs[m]` for m < 32, number 160 + 16n + m digit n of `qs[32 + m]` for m < 16, number 240 + 4n + m digit n of `qh[m]`
//! for n < 4 (`trits.rs`). Each is `(digit - 1) * d`. Source: GGUF specification, tensor type 34.

use crate::fields::{f16_at, put_f16};
use crate::trits;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Tq1_0;

impl Codec for Tq1_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "tq1_0", block_len: 256, block_bytes: 54, gguf: Some(34) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.fill(Group::symmetric(f16_at(block, 52)));
        trits::unpack(&block[..32], &mut out.codes[..160]);
        trits::unpack(&block[32..48], &mut out.codes[160..240]);
        trits::unpack(&block[48..52], &mut out.codes[240..]);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Tq1_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(256).zip(out.chunks_exact_mut(54)) {
            let mut digits = [0; 256];
            put_f16(block, 52, trits::quantize(x, &mut digits));
            trits::pack(&digits[..160], &mut block[..32]);
            trits::pack(&digits[160..240], &mut block[32..48]);
            trits::pack(&digits[240..], &mut block[48..52]);
        }
    }
}
