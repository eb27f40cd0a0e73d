//! `q5_1`: 32 numbers of five bits under one half-precision scale and minimum.
//!
//! Block, 24 bytes, little-endian: `d: f16` at 0, `m: f16` at 2, `qh: u32` at 4, `qs: [u8; 16]` at 8. The low four bits
//! of number j < 16 are the low nibble of `qs[j]`, those of number j + 16 its high nibble; bit j of `qh` is the fifth.
//! Each is `q * d + m`, rounded twice. Source: GGUF specification, tensor type 7.

use crate::fields::{f16_at, fifth_bits, half_split, put_f16, put_half_split, u32_at};
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q5_1;

impl Codec for Q5_1 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q5_1", block_len: 32, block_bytes: 24, gguf: Some(7) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group { scale: f16_at(block, 0), offset: f16_at(block, 2) };
        half_split(&block[8..], out.codes, |q| q as i8);
        let high = u32_at(block, 4);
        for (j, code) in out.codes.iter_mut().enumerate() {
            *code |= (high >> j & 1) as i8 * 16;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q5_1 {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let around = search::mean_square(row);
        for (i, (x, block)) in row.chunks_exact(32).zip(out.chunks_exact_mut(24)).enumerate() {
            let (d, min, codes) = match importance {
                Some(v) => {
                    let w = search::column_weights(x, &v[32 * i..], around);
                    search::over_range_weighted(x, &w, 31)
                }
                None => search::over_range(x, 31),
            };
            put_f16(block, 0, d);
            put_f16(block, 2, min);
            block[4..8].copy_from_slice(&fifth_bits(&codes).to_le_bytes());
            put_half_split(&codes, &mut block[8..]);
        }
    }
}
