//! `q4_k`: 256 numbers of four bits in eight sub-blocks under six-bit scales and minimums.
//!
//! Block, 144 bytes, little-endian: the header of `k_scales.rs`, then `qs: [u8; 128]` at 16. Number 64n + l is the low
//! nibble of `qs[32n + l]`, number 64n + 32 + l the high one. Number i of sub-block b is
//! `(d * scale[b]) * q[i] - dmin * min[b]`. Source: GGUF specification, tensor type 12.

use crate::fields::{bytes, planes4, put_planes4};
use crate::k_scales;
use crate::search::Steps;
use crate::{Codec, Encode, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q4K;

impl Codec for Q4K {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q4_k", block_len: 256, block_bytes: 144, gguf: Some(12) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.copy_from_slice(&k_scales::groups(block));
        for (code, q) in out.codes.iter_mut().zip(planes4(bytes(block, 16))) {
            *code = q as i8;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q4K {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let steps = Steps { first: -1.0, step: 0.1, last: 20, absolute: false };
        for (i, (x, block)) in row.chunks_exact(256).zip(out.chunks_exact_mut(144)).enumerate() {
            let codes = k_scales::quantize(x, importance.map(|v| &v[256 * i..]), 15, &steps, block);
            put_planes4(&codes, &mut block[16..]);
        }
    }
}
