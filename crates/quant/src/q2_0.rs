//! `q2_0`: 64 numbers of two bits under one half-precision scale.
//!
//! Block, 18 bytes, little-endian: `d: f16` at 0, `qs: [u8; 16]` at 2. Number j is bits 2(j % 4) and 2(j % 4) + 1 of
//! `qs[j / 4]`; each is `(q - 1) * d`: -d, 0, +d, +2d. Source: GGUF specification, tensor type 42.
//! Some older files use the same id for `pq2_0`; the container tells them apart.

use crate::fields::{f16_at, put_f16};
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q2_0;

impl Codec for Q2_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q2_0", block_len: 64, block_bytes: 18, gguf: Some(42) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<64, 2>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        unpack(block, out);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q2_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(64).zip(out.chunks_exact_mut(18)) {
            encode(x, block);
        }
    }
}

/// Unpacks a block of any length in this layout.
pub fn unpack(block: &[u8], out: &mut Unpacked<'_>) {
    out.groups.fill(Group::symmetric(f16_at(block, 0)));
    for (codes, &byte) in out.codes.chunks_exact_mut(4).zip(&block[2..]) {
        for (j, code) in codes.iter_mut().enumerate() {
            *code = (byte >> (2 * j) & 3) as i8 - 1;
        }
    }
}

/// Rounds `x` into a block of as many numbers.
pub fn encode(x: &[f32], block: &mut [u8]) {
    let d = search::magnitude(x);
    let inverse = search::inverse(d);
    put_f16(block, 0, d);
    for (byte, x) in block[2..].iter_mut().zip(x.chunks_exact(4)) {
        let code = |x: f32| ((x * inverse).round().clamp(-1.0, 2.0) + 1.0) as u8;
        *byte = (0..4).fold(0, |byte, j| byte | code(x[j]) << (2 * j));
    }
}
