//! `q5_k`: 256 numbers of five bits in eight sub-blocks under six-bit scales and minimums.
//!
//! Block, 176 bytes, little-endian: the header of `k_scales.rs`, `qh: [u8; 32]` at 16, `qs: [u8; 128]` at 48. Low bits as
//! in `q4_k`; the fifth bit of number l of sub-block b is bit b of `qh[l]`. Number i of sub-block b is
//! `(d * scale[b]) * q[i] - dmin * min[b]`. Source: GGUF specification, tensor type 13.

use crate::fields::{bytes, planes4, put_planes4};
use crate::k_scales;
use crate::search::Steps;
use crate::{Codec, Encode, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q5K;

impl Codec for Q5K {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q5_k", block_len: 256, block_bytes: 176, gguf: Some(13) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.copy_from_slice(&k_scales::groups(block));
        let high = bytes::<32>(block, 16);
        let low = planes4(bytes(block, 48));
        for (b, (codes, low)) in out.codes.chunks_exact_mut(32).zip(low.chunks_exact(32)).enumerate() {
            for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
                *code = (low | (high >> b & 1) << 4) as i8;
            }
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q5K {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let steps = Steps { first: -0.5, step: 0.1, last: 15, absolute: false };
        for (i, (x, block)) in row.chunks_exact(256).zip(out.chunks_exact_mut(176)).enumerate() {
            let codes = k_scales::quantize(x, importance.map(|v| &v[256 * i..]), 31, &steps, block);
            block[16..48].fill(0);
            for (j, code) in codes.iter().enumerate() {
                block[16 + j % 32] |= (code >> 4) << (j / 32);
            }
            put_planes4(&codes, &mut block[48..]);
        }
    }
}
