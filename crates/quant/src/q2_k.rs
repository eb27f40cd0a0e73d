//! `q2_k`: 256 numbers of two bits in 16 sub-blocks under four-bit scales and minimums.
//!
//! Block, 84 bytes, little-endian: `scales: [u8; 16]` at 0 (scale in the low nibble, minimum in the high one),
//! `qs: [u8; 64]` at 16, `d: f16` at 80, `dmin: f16` at 82. Number 128n + 32j + l is bits 2j and 2j + 1 of `qs[32n + l]`.
//! Number i of sub-block s is `(d * scale[s]) * q - dmin * min[s]`. Source: GGUF specification, tensor type 10.

use crate::fields::{bytes, f16_at, planes2, put_f16, put_planes2};
use crate::search::{self, Steps, nearest_up_to, scale_and_min};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q2K;

impl Codec for Q2K {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q2_k", block_len: 256, block_bytes: 84, gguf: Some(10) }
    }

    fn kind(&self) -> Kind {
        Kind::Group16
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 16>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (d, dmin) = (f16_at(block, 80), f16_at(block, 82));
        for (group, &s) in out.groups.iter_mut().zip(&block[..16]) {
            *group = Group { scale: d * f32::from(s & 15), offset: -(dmin * f32::from(s >> 4)) };
        }
        for (code, q) in out.codes.iter_mut().zip(planes2(bytes(block, 16))) {
            *code = q as i8;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q2K {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let steps = Steps { first: -0.5, step: 0.1, last: 15, absolute: true };
        let steps = if importance.is_some() { &search::WEIGHTED } else { &steps };
        for (i, (x, block)) in row.chunks_exact(256).zip(out.chunks_exact_mut(84)).enumerate() {
            let around = search::mean_square(x);
            let (mut scales, mut mins, mut codes) = ([0.0; 16], [0.0; 16], [0; 256]);
            let mut weights = importance.map(|_| [0.0; 16]);
            for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
                let w: [f32; 16] = match importance {
                    Some(v) => search::column_weights(x, &v[256 * i + 16 * s..], around),
                    None => std::array::from_fn(|l| x[l].abs()),
                };
                weights.iter_mut().for_each(|all| all[s] = w.iter().fold(0.0, |sum, w| sum + w));
                (scales[s], mins[s]) = scale_and_min(x, &w, 3, steps, codes);
            }
            let (d, scales) = four_bits(&scales, weights.as_ref());
            let (dmin, mins) = four_bits(&mins, weights.as_ref());
            let (d, dmin) = (put_f16(block, 80, d), put_f16(block, 82, dmin));
            for (s, (x, codes)) in x.chunks_exact(16).zip(codes.chunks_exact_mut(16)).enumerate() {
                block[s] = scales[s] | mins[s] << 4;
                let (d, m) = (d * f32::from(scales[s]), dmin * f32::from(mins[s]));
                if d != 0.0 {
                    for (code, x) in codes.iter_mut().zip(x) {
                        *code = nearest_up_to((x + m) / d, 3);
                    }
                }
            }
            put_planes2(&codes, &mut block[16..80]);
        }
    }
}

/// Sixteen scales as a common factor and four bits each, with the least error weighted by `weights` if there are some.
fn four_bits(scales: &[f32; 16], weights: Option<&[f32; 16]>) -> (f32, [u8; 16]) {
    if let Some(weights) = weights {
        let mut codes = [0; 16];
        return (search::positive(scales, weights, 15, &mut codes), codes);
    }
    let max = scales.iter().copied().fold(0.0, f32::max);
    let inverse = if max > 0.0 { 15.0 / max } else { 0.0 };
    (max / 15.0, scales.map(|scale| nearest_up_to(inverse * scale, 15)))
}
