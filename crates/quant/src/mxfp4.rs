//! `mxfp4`: 32 four-bit floats (E2M1) under one power of two.
//!
//! Block, 17 bytes: `e: u8` at 0, `qs: [u8; 16]` at 1. Number j < 16 is in the low nibble of `qs[j]`, number j + 16 in its
//! high nibble; each is `FP4[q] * 2^(e - 127)`, without a special meaning for e = 255. In integers: doubled floats under
//! half the scale. Source: GGUF specification, tensor type 39; OCP Microscaling Formats 1.0.

use crate::fields::{half_split, put_half_split};
use crate::fp4;
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Mxfp4;

impl Codec for Mxfp4 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "mxfp4", block_len: 32, block_bytes: 17, gguf: Some(39) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(half_scale(block[0]));
        half_split(&block[1..], out.codes, |q| fp4::DOUBLED[usize::from(q)]);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Mxfp4 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(32).zip(out.chunks_exact_mut(17)) {
            let max = search::magnitude(x);
            // The largest float is 6 = 1.5 * 2^2: its exponent, 2, goes to the codes.
            let e = if max > 0.0 { (max.log2().floor() - 2.0 + 127.0) as u8 } else { 0 };
            let scale = half_scale(e);
            let codes: [u8; 32] = std::array::from_fn(|j| fp4::nearest(x[j], scale));
            block[0] = e;
            put_half_split(&codes, &mut block[1..]);
        }
    }
}

/// `2^(e - 128)`, a subnormal number for e < 2.
fn half_scale(e: u8) -> f32 {
    f32::from_bits(if e < 2 { 0x0020_0000 << e } else { u32::from(e - 1) << 23 })
}
