//! `f8_e4m3`, `f8_e5m2`: eight-bit floats, one byte each.
//!
//! E4M3 has four bits of exponent (bias 7), no infinities, and not-a-number at 0x7f and 0xff; E5M2 has five (bias 15),
//! infinities and not-a-numbers as in IEEE formats. Source: OCP 8-bit Floating Point Specification 1.0.

use crate::{Codec, Kind, Spec};
use half::f16;

/// The codec of E4M3.
pub struct F8E4M3;
/// The codec of E5M2.
pub struct F8E5M2;

/// The number of an E4M3 byte.
pub fn e4m3(code: u8) -> f32 {
    let (exponent, mantissa) = (code >> 3 & 15, f32::from(code & 7));
    let magnitude = match (exponent, code & 7) {
        (15, 7) => f32::NAN,
        (0, _) => mantissa / 512.0,
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 120) << 23),
    };
    if code & 0x80 == 0 { magnitude } else { -magnitude }
}

/// The number of an E8M0 byte, `2^(code - 127)`; 255 is not a number.
pub fn e8m0(code: u8) -> f32 {
    match code {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(code) << 23),
    }
}

/// All numbers of E4M3.
pub static E4M3: std::sync::LazyLock<[f32; 256]> =
    std::sync::LazyLock::new(|| std::array::from_fn(|code| e4m3(code as u8)));

impl Codec for F8E4M3 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "f8_e4m3", block_len: 1, block_bytes: 1, gguf: None }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        out[0] = E4M3[usize::from(block[0])];
    }

    fn decode_row(&self, row: &[u8], out: &mut [f32]) {
        let table = &*E4M3;
        out.iter_mut().zip(row).for_each(|(out, &code)| *out = table[usize::from(code)]);
    }
}

impl Codec for F8E5M2 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "f8_e5m2", block_len: 1, block_bytes: 1, gguf: None }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        // It is the upper half of a half-precision number.
        out[0] = f16::from_le_bytes([0, block[0]]).to_f32();
    }
}
