//! `f8_e4m3_G`: G eight-bit floats (E4M3) under one single-precision scale; `mxfp8`: 32 of them under a power of two.
//!
//! Block of `f8_e4m3_G`, G + 4 bytes, little-endian: `scale: f32` at 0, `q: [u8; G]` at 4. Block of `mxfp8`, 33 bytes:
//! `e: u8` at 0, `q: [u8; 32]` at 1; the scale is `2^(e - 127)`. Number i is `E4M3[q[i]] * scale`.
//! Source: checkpoints of FP8 models keep scales of 128 x 128 numbers apart; OCP Microscaling Formats 1.0.

use crate::f8::{E4M3, e8m0};
use crate::{Codec, Kind, Spec};

/// The codecs with single-precision scales.
pub struct F8Scaled(&'static Spec);
/// The codec under powers of two.
pub struct Mxfp8;

/// 128 numbers under a scale.
pub static F8_128: F8Scaled =
    F8Scaled(&Spec { name: "f8_e4m3_128", block_len: 128, block_bytes: 132, gguf: None });
/// 64 numbers under a scale.
pub static F8_64: F8Scaled =
    F8Scaled(&Spec { name: "f8_e4m3_64", block_len: 64, block_bytes: 68, gguf: None });
/// 32 numbers under a scale.
pub static F8_32: F8Scaled =
    F8Scaled(&Spec { name: "f8_e4m3_32", block_len: 32, block_bytes: 36, gguf: None });

impl Codec for F8Scaled {
    fn spec(&self) -> &'static Spec {
        self.0
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        let (scale, codes) = block.split_at(4);
        scaled(f32::from_le_bytes([scale[0], scale[1], scale[2], scale[3]]), codes, out);
    }
}

impl Codec for Mxfp8 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "mxfp8", block_len: 32, block_bytes: 33, gguf: None }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        scaled(e8m0(block[0]), &block[1..], out);
    }
}

fn scaled(scale: f32, codes: &[u8], out: &mut [f32]) {
    let table = &*E4M3;
    out.iter_mut().zip(codes).for_each(|(out, &code)| *out = table[usize::from(code)] * scale);
}
