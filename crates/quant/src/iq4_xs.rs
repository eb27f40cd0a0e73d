//! `iq4_xs`: 256 numbers as four-bit indices into 16 uneven levels in eight sub-blocks under six-bit signed scales.
//!
//! Block, 136 bytes, little-endian: `d: f16` at 0, `high: u16` at 2, `low: [u8; 4]` at 4, `qs: [u8; 128]` at 8. Scale b
//! has its low four bits in nibble b % 2 of `low[b / 2]`, its high two at 2b of `high`, and 32 too much. A sub-block is 16
//! bytes, its first half in their low nibbles; each number is `(d * scale) * LEVELS[q]`.
//! Source: GGUF specification, tensor type 23.

use crate::fields::{f16_at, half_split, put_f16, put_half_split, u16_at};
use crate::iq4_nl::{LEVELS, indices, scale, variance, weights};
use crate::search::{farthest, inverse, nearest};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Iq4Xs;

impl Codec for Iq4Xs {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq4_xs", block_len: 256, block_bytes: 136, gguf: Some(23) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (d, high) = (f16_at(block, 0), u16_at(block, 2));
        for (b, group) in out.groups.iter_mut().enumerate() {
            let low = block[4 + b / 2] >> (4 * (b % 2)) & 15;
            let scale = low | ((high >> (2 * b) & 3) as u8) << 4;
            *group = Group::symmetric(d * f32::from(scale as i8 - 32));
        }
        for (codes, qs) in out.codes.chunks_exact_mut(32).zip(block[8..].chunks_exact(16)) {
            half_split(qs, codes, |q| LEVELS[usize::from(q)]);
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Iq4Xs {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (i, (x, block)) in row.chunks_exact(256).zip(out.chunks_exact_mut(136)).enumerate() {
            let variance = variance(x);
            let mut scales = [0.0; 8];
            for (b, (scale_b, x)) in scales.iter_mut().zip(x.chunks_exact(32)).enumerate() {
                let w = weights(x, importance.map(|v| &v[256 * i + 32 * b..]), variance);
                *scale_b = scale(x, &w);
            }
            block.fill(0);
            let d = -farthest(&scales) / 32.0;
            put_f16(block, 0, d);
            let mut high = 0;
            for (b, x) in x.chunks_exact(32).enumerate() {
                let code = nearest(inverse(d) * scales[b]).clamp(-32, 31);
                let stored = (code + 32) as u16;
                block[4 + b / 2] |= (stored as u8 & 15) << (4 * (b % 2));
                high |= (stored >> 4) << (2 * b);
                let indices = indices(x, inverse(d * code as f32));
                put_half_split(&indices, &mut block[8 + 16 * b..][..16]);
            }
            block[2..4].copy_from_slice(&high.to_le_bytes());
        }
    }
}
