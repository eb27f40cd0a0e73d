//! `q4_1`: 32 numbers of four bits under one half-precision scale and minimum.
//!
//! Block, 20 bytes, little-endian: `d: f16` at 0, `m: f16` at 2, `qs: [u8; 16]` at 4. Number j < 16 is in the low
//! nibble of `qs[j]`, number j + 16 in its high nibble; each is `q * d + m`, rounded twice.
//! Source: GGUF specification, tensor type 3.

use crate::fields::{f16_at, half_split, put_f16, put_half_split};
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q4_1;

impl Codec for Q4_1 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q4_1", block_len: 32, block_bytes: 20, gguf: Some(3) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group { scale: f16_at(block, 0), offset: f16_at(block, 2) };
        half_split(&block[4..], out.codes, |q| q as i8);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q4_1 {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let around = search::mean_square(row);
        for (i, (x, block)) in row.chunks_exact(32).zip(out.chunks_exact_mut(20)).enumerate() {
            let (d, min, codes) = match importance {
                Some(v) => {
                    let w = search::column_weights(x, &v[32 * i..], around);
                    search::over_range_weighted(x, &w, 15)
                }
                None => search::over_range(x, 15),
            };
            put_f16(block, 0, d);
            put_f16(block, 2, min);
            put_half_split(&codes, &mut block[4..]);
        }
    }
}
