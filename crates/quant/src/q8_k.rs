//! `q8_k`: 256 numbers as signed bytes under one single-precision scale, with sums: a form for activations.
//!
//! Block, 292 bytes, little-endian: `d: f32` at 0, `q: [i8; 256]` at 4, `sums: [i16; 16]` at 260 (of 16 codes each, not
//! needed to decode). Number i is `d * q[i]`. Source: GGUF specification, tensor type 15.

use crate::fields::{bytes, signed_bytes};
use crate::search::{farthest, nearest};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q8K;

impl Codec for Q8K {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q8_k", block_len: 256, block_bytes: 292, gguf: Some(15) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.fill(Group::symmetric(f32::from_le_bytes(*bytes(block, 0))));
        signed_bytes(&block[4..260], out.codes);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q8K {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(256).zip(out.chunks_exact_mut(292)) {
            let far = farthest(x);
            if far == 0.0 {
                block.fill(0);
                continue;
            }
            let inverse = -127.0 / far;
            block[..4].copy_from_slice(&(1.0 / inverse).to_le_bytes());
            let (codes, sums) = block[4..].split_at_mut(256);
            let groups = codes.chunks_exact_mut(16).zip(sums.chunks_exact_mut(2)).zip(x.chunks_exact(16));
            for ((codes, place), x) in groups {
                let mut sum = 0i16;
                for (code, x) in codes.iter_mut().zip(x) {
                    let q = nearest(inverse * x).clamp(-128, 127) as i8;
                    *code = q as u8;
                    sum += i16::from(q);
                }
                place.copy_from_slice(&sum.to_le_bytes());
            }
        }
    }
}
