//! `q3_k`: 256 numbers of three bits, centred on 4, in 16 sub-blocks under six-bit signed scales.
//!
//! Block, 110 bytes, little-endian: `hmask: [u8; 32]` at 0, `qs: [u8; 64]` at 32, `s: [u8; 12]` at 96, `d: f16` at 108.
//! Number 128n + 32j + l has its low bits at 2j of `qs[32n + l]` and its third at 4n + j of `hmask[l]`. Scale i has its
//! low four bits in a nibble of `s[i % 8]` (low ones first), its high two at 2(i / 4) of `s[8 + i % 4]`, and 32 too much.
//! Each number is `(d * scale) * (q - 4)`. Source: GGUF specification, tensor type 11.

use crate::fields::{bytes, f16_at, planes2, put_f16, put_planes2};
use crate::search::{self, TINY, farthest, nearest, symmetric, symmetric_by_descent};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q3K;

impl Codec for Q3K {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q3_k", block_len: 256, block_bytes: 110, gguf: Some(11) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 16>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let d = f16_at(block, 108);
        for (group, scale) in out.groups.iter_mut().zip(scales(bytes(block, 96))) {
            *group = Group::symmetric(d * f32::from(scale));
        }
        let high = bytes::<32>(block, 0);
        let low = planes2(bytes(block, 32));
        for (b, (codes, low)) in out.codes.chunks_exact_mut(32).zip(low.chunks_exact(32)).enumerate() {
            for ((code, low), high) in codes.iter_mut().zip(low).zip(high) {
                *code = (low | (high >> b & 1) << 2) as i8 - 4;
            }
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q3K {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (i, (x, block)) in row.chunks_exact(256).zip(out.chunks_exact_mut(110)).enumerate() {
            let mut codes = [0; 256];
            block.fill(0);
            match importance {
                Some(v) => find_weighted(x, &v[256 * i..], &mut codes, block),
                None => find(x, &mut codes, block),
            }
            let (d, scales) = (f16_at(block, 108), scales(bytes(block, 96)));
            for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
                let d = d * f32::from(scales[s]);
                if d != 0.0 {
                    for (code, x) in codes.iter_mut().zip(x) {
                        *code = (nearest(x / d).clamp(-4, 3) + 4) as u8;
                    }
                }
            }
            for (i, code) in codes.iter().enumerate() {
                block[i % 32] |= (code >> 2) << (i / 32);
            }
            put_planes2(&codes, &mut block[32..96]);
        }
    }
}

/// Writes the scales of 256 numbers into an empty block, and codes for sub-blocks whose scale becomes 0.
fn find(x: &[f32], codes: &mut [u8; 256], block: &mut [u8]) {
    let mut found = [0.0; 16];
    for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
        found[s] = symmetric_by_descent(x, 4, codes);
    }
    let far = farthest(&found);
    if far.abs() >= TINY {
        let inverse = -32.0 / far;
        put_scales(&found.map(|scale| (nearest(inverse * scale).clamp(-32, 31) + 32) as u8), block);
        put_f16(block, 108, 1.0 / inverse);
    }
}

/// As [`find`], with an importance for each number.
fn find_weighted(x: &[f32], importance: &[f32], codes: &mut [u8; 256], block: &mut [u8]) {
    let around = 2.0 * search::mean_square(x);
    let (mut found, mut weights, mut scales) = ([0.0; 16], [0.0; 16], [0; 16]);
    for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
        let w: [f32; 16] = search::column_weights(x, &importance[16 * s..], around);
        weights[s] = w.iter().fold(0.0, |sum, w| sum + w);
        found[s] = symmetric(x, Some(&w), 4, codes);
    }
    let d = symmetric(&found, Some(&weights), 32, &mut scales);
    put_scales(&scales, block);
    put_f16(block, 108, d);
}

/// The sixteen scales, -32..32.
fn scales(s: &[u8; 12]) -> [i8; 16] {
    std::array::from_fn(|i| {
        let low = s[i % 8] >> (4 * (i / 8)) & 15;
        let high = s[8 + i % 4] >> (2 * (i / 4)) & 3;
        (low | high << 4) as i8 - 32
    })
}

/// The reverse of [`scales`], into an empty block; from scales with 32 added.
fn put_scales(scales: &[u8; 16], block: &mut [u8]) {
    let s = &mut block[96..108];
    for (i, scale) in scales.iter().enumerate() {
        s[i % 8] |= (scale & 15) << (4 * (i / 8));
        s[8 + i % 4] |= (scale >> 4) << (2 * (i / 4));
    }
}
