//! `f8_e4m3_G`: G eight-bit floats (E4M3) under one single-precision scale; `mxfp8`: 32 of them under a power of two.
//!
//! Block of `f8_e4m3_G`, G + 4 bytes, little-endian: `scale: f32` at 0, `q: [u8; G]` at 4. Block of `mxfp8`, 33 bytes:
//! `e: u8` at 0, `q: [u8; 32]` at 1; the scale is `2^(e - 127)`. Number i is `E4M3[q[i]] * scale`.
//! Source: checkpoints of FP8 models keep scales of 128 x 128 numbers apart; OCP Microscaling Formats 1.0.

use crate::f8::{E4M3, F8E4M3, F8E5M2, e8m0};
use crate::{Codec, Kind, Spec};

/// The codecs with single-precision scales.
pub struct F8Scaled(&'static Spec);
/// The codec under powers of two.
pub struct Mxfp8;

/// How blocks of eight-bit floats lie: bytes of a scale, then a byte for each number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bits of the mantissa: 3 (E4M3), or 2 (E5M2).
    pub mantissa: u32,
    /// Bytes of the scale: 4 (single precision), 1 (a power of two), or 0.
    pub lead: usize,
}

impl Layout {
    /// The layout of a codec, if it is one of these.
    pub fn of(codec: &dyn Codec) -> Option<Self> {
        let own: [(&dyn Codec, u32, usize); 6] = [
            (&F8E4M3, 3, 0),
            (&F8E5M2, 2, 0),
            (&F8_32, 3, 4),
            (&F8_64, 3, 4),
            (&F8_128, 3, 4),
            (&Mxfp8, 3, 1),
        ];
        let found = own.into_iter().find(|(own, ..)| own.spec().name == codec.spec().name);
        found.map(|(_, mantissa, lead)| Self { mantissa, lead })
    }

    /// The scale of a block.
    pub fn scale(&self, block: &[u8]) -> f32 {
        match *block {
            _ if self.lead == 0 => 1.0,
            [e, ..] if self.lead == 1 => e8m0(e),
            [a, b, c, d, ..] => f32::from_le_bytes([a, b, c, d]),
            _ => unreachable!("a block begins with its scale"),
        }
    }

    /// Whether a byte is a number, neither infinite nor none.
    pub fn is_number(&self, byte: u8) -> bool {
        if self.mantissa == 3 { byte & 0x7f != 0x7f } else { byte & 0x7f < 0x7c }
    }
}

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
