//! `ptq1_0`: 128 ternary numbers, five in a byte, under one half-precision scale (Prism).
//!
//! Block, 28 bytes, little-endian: `qs: [u8; 24]` at 0, `qh: [u8; 2]` at 24, `d: f16` at 26. Number 16n + m is digit n of
//! `qs[m]` for m < 16, number 80 + 8n + m digit n of `qs[16 + m]` for m < 8, number 120 + 2n + m digit n of `qh[m]` for
//! n < 4 (`trits.rs`). Each is `(digit - 1) * d`. Source: PrismML's GGUF files, tensor type 143.

use crate::fields::{f16_at, put_f16};
use crate::trits;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Ptq1_0;

impl Codec for Ptq1_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "ptq1_0", block_len: 128, block_bytes: 28, gguf: Some(143) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<128, 4>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.fill(Group::symmetric(f16_at(block, 26)));
        trits::unpack(&block[..16], &mut out.codes[..80]);
        trits::unpack(&block[16..24], &mut out.codes[80..120]);
        trits::unpack(&block[24..26], &mut out.codes[120..]);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Ptq1_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(128).zip(out.chunks_exact_mut(28)) {
            let mut digits = [0; 128];
            put_f16(block, 26, trits::quantize(x, &mut digits));
            trits::pack(&digits[..80], &mut block[..16]);
            trits::pack(&digits[80..120], &mut block[16..24]);
            trits::pack(&digits[120..], &mut block[24..26]);
        }
    }
}
