//! `q5_0`: 32 numbers of five bits, centred on 16, under one half-precision scale.
//!
//! Block, 22 bytes, little-endian: `d: f16` at 0, `qh: u32` at 2, `qs: [u8; 16]` at 6. The low four bits
//! of number j < 16 are the low nibble of `qs[j]`, those of number j + 16 its high nibble; bit j of `qh` is the fifth.
//! Each is `(q - 16) * d`. Source: GGUF specification, tensor type 6.

use crate::fields::{f16_at, fifth_bits, half_split, put_f16, put_half_split, u32_at};
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q5_0;

impl Codec for Q5_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q5_0", block_len: 32, block_bytes: 22, gguf: Some(6) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f16_at(block, 0));
        half_split(&block[6..], out.codes, |q| q as i8);
        let high = u32_at(block, 2);
        for (j, code) in out.codes.iter_mut().enumerate() {
            *code += (high >> j & 1) as i8 * 16 - 16;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q5_0 {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let around = search::mean_square(row);
        for (i, (x, block)) in row.chunks_exact(32).zip(out.chunks_exact_mut(22)).enumerate() {
            let mut codes = [0; 32];
            let d = match importance {
                Some(v) => {
                    let w: [f32; 32] = search::column_weights(x, &v[32 * i..], around);
                    search::symmetric(x, Some(&w), 16, &mut codes)
                }
                None => {
                    // The number farthest from 0 becomes code 0: -16 steps.
                    let d = search::farthest(x) / -16.0;
                    let inverse = search::inverse(d);
                    codes = std::array::from_fn(|j| (x[j] * inverse + 16.5).min(31.0) as u8);
                    d
                }
            };
            put_f16(block, 0, d);
            block[2..6].copy_from_slice(&fifth_bits(&codes).to_le_bytes());
            put_half_split(&codes, &mut block[6..]);
        }
    }
}
