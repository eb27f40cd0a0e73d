//! `nvfp4`: 64 four-bit floats (E2M1) in four sub-blocks under unsigned eight-bit float scales (E4M3).
//!
//! Block, 36 bytes: `scales: [u8; 4]` at 0, `qs: [u8; 32]` at 4. Sub-block s of 16 numbers is in `qs[8s..8s + 8]`: the
//! first eight in the low nibbles, the others in the high ones. Each is `FP4[q] * E4M3[scale]`, where bit 7 of a scale is
//! ignored and 0x7f is 0. In integers: doubled floats under half the scale. A factor for the whole tensor, if there is
//! one, is another tensor. Source: GGUF specification, tensor type 40.

use crate::fields::{half_split, put_half_split};
use crate::fp4;
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Nvfp4;

impl Codec for Nvfp4 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "nvfp4", block_len: 64, block_bytes: 36, gguf: Some(40) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<64, 4>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let parts = out.groups.iter_mut().zip(out.codes.chunks_exact_mut(16));
        for ((group, codes), (&scale, qs)) in parts.zip(block[..4].iter().zip(block[4..].chunks_exact(8))) {
            *group = Group::symmetric(half_scale(scale));
            half_split(qs, codes, |q| fp4::DOUBLED[usize::from(q)]);
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Nvfp4 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(64).zip(out.chunks_exact_mut(36)) {
            let (scales, qs) = block.split_at_mut(4);
            for ((scale, qs), x) in scales.iter_mut().zip(qs.chunks_exact_mut(8)).zip(x.chunks_exact(16)) {
                *scale = scale_code(search::magnitude(x) / 6.0);
                let half = half_scale(*scale);
                let codes: [u8; 16] = std::array::from_fn(|j| fp4::nearest(x[j], half));
                put_half_split(&codes, qs);
            }
        }
    }
}

/// Half of the scale that a byte stands for.
fn half_scale(code: u8) -> f32 {
    let (exponent, mantissa) = (code >> 3 & 15, f32::from(code & 7));
    match (code, exponent) {
        (0x7f, _) => 0.0,
        (_, 0) => mantissa / 1024.0,
        _ => (1.0 + mantissa / 8.0) * f32::from_bits((u32::from(exponent) + 119) << 23),
    }
}

/// The byte for a scale of `x >= 0`: the nearest, ties up, at most 448.
fn scale_code(x: f32) -> u8 {
    let bits = x.min(448.0).to_bits();
    let exponent = (bits >> 23) as i32 - 120;
    if exponent <= 0 {
        return (x * 512.0 + 0.5).min(7.0) as u8;
    }
    let code = (exponent as u32) << 3 | bits >> 20 & 7;
    (code + (bits >> 19 & 1)).min(0x7e) as u8
}
