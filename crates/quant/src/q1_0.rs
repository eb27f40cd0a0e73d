//! `q1_0`: 128 signs under one half-precision magnitude.
//!
//! Block, 18 bytes, little-endian: `d: f16` at 0, `bits: [u8; 16]` at 2. Number j is +d if bit j % 8 of `bits[j / 8]` is
//! set, else -d. Source: GGUF specification, tensor type 41.

use crate::fields::{f16_at, put_f16};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q1_0;

impl Codec for Q1_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q1_0", block_len: 128, block_bytes: 18, gguf: Some(41) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<128, 4>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.fill(Group::symmetric(f16_at(block, 0)));
        for (codes, &byte) in out.codes.chunks_exact_mut(8).zip(&block[2..]) {
            for (j, code) in codes.iter_mut().enumerate() {
                *code = (byte >> j & 1) as i8 * 2 - 1;
            }
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q1_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(128).zip(out.chunks_exact_mut(18)) {
            put_f16(block, 0, x.iter().fold(0.0, |sum, x| sum + x.abs()) / 128.0);
            for (byte, x) in block[2..].iter_mut().zip(x.chunks_exact(8)) {
                *byte = (0..8).fold(0, |byte, j| byte | u8::from(x[j] >= 0.0) << j);
            }
        }
    }
}
