//! `q6_k`: 256 numbers of six bits, centred on 32, in 16 sub-blocks under signed byte scales.
//!
//! Block, 210 bytes, little-endian: `ql: [u8; 128]` at 0, `qh: [u8; 64]` at 128, `scales: [i8; 16]` at 192, `d: f16` at
//! 208. Number 128n + 32j + l has its high bits at 2j of `qh[32n + l]`, its low four in `ql[64n + 32(j % 2) + l]`: the low
//! nibble for j < 2, else the high one. Each is `(d * scale) * (q - 32)`. Source: GGUF specification, tensor type 14.

use crate::fields::{bytes, f16_at, half_split, planes2, put_f16, put_half_split, put_planes2};
use crate::search::{TINY, farthest, nearest, symmetric};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q6K;

impl Codec for Q6K {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q6_k", block_len: 256, block_bytes: 210, gguf: Some(14) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 16>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 208);
        for (group, &scale) in out.groups.iter_mut().zip(&block[192..208]) {
            *group = Group::symmetric(d * f32::from(scale as i8));
        }
        let high = planes2(bytes(block, 128));
        let halves = out.codes.chunks_exact_mut(128).zip(high.chunks_exact(128));
        for ((codes, high), low) in halves.zip(block.chunks_exact(64)) {
            half_split(low, codes, |q| q as i8);
            for (code, high) in codes.iter_mut().zip(high) {
                *code = (*code | (high << 4) as i8) - 32;
            }
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q6K {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (i, (x, block)) in row.chunks_exact(256).zip(out.chunks_exact_mut(210)).enumerate() {
            let (mut found, mut codes) = ([0.0; 16], [0; 256]);
            for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
                let w = importance.map(|v| &v[256 * i + 16 * s..]);
                found[s] = symmetric(x, w, 32, codes);
            }
            let far = farthest(&found);
            block.fill(0);
            if far.abs() < TINY {
                continue;
            }
            let inverse = -128.0 / far;
            let d = put_f16(block, 208, 1.0 / inverse);
            for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
                let scale = nearest(inverse * found[s]).clamp(-128, 127) as i8;
                block[192 + s] = scale as u8;
                let d = d * f32::from(scale);
                if d != 0.0 {
                    for (code, x) in codes.iter_mut().zip(x) {
                        *code = (nearest(x / d).clamp(-32, 31) + 32) as u8;
                    }
                }
            }
            for (codes, low) in codes.chunks_exact(128).zip(block.chunks_exact_mut(64)) {
                put_half_split(codes, low);
            }
            put_planes2(&codes.map(|q| q >> 4), &mut block[128..192]);
        }
    }
}
