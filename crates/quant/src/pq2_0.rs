//! `pq2_0`: 128 numbers of two bits under one half-precision scale (Prism).
//!
//! Block, 34 bytes, little-endian: `d: f16` at 0, `qs: [u8; 32]` at 2. Number j is bits 2(j % 4) and 2(j % 4) + 1 of
//! `qs[j / 4]`; each is `(q - 1) * d`: -d, 0, +d, +2d. Source: PrismML's GGUF files, tensor type
//! 142, and 42 in their first releases.

use crate::{Codec, Encode, Kind, Spec, Unpacked, decode_unpacked, q2_0};

/// The codec.
pub struct Pq2_0;

impl Codec for Pq2_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "pq2_0", block_len: 128, block_bytes: 34, gguf: Some(142) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<128, 4>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        q2_0::unpack(block, out);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Pq2_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(128).zip(out.chunks_exact_mut(34)) {
            q2_0::encode(x, block);
        }
    }
}
