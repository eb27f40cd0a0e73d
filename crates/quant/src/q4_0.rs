//! `q4_0`: 32 numbers of four bits, centred on 8, under one half-precision scale.
//!
//! Block, 18 bytes, little-endian: `d: f16` at 0, `qs: [u8; 16]` at 2. Number j < 16 is in the low nibble of
//! `qs[j]`, number j + 16 in its high nibble; each is `(q - 8) * d`. Source: GGUF specification, tensor type 2.

use crate::fields::{f16_at, half_split, put_f16, put_half_split};
use crate::search;
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The codec.
pub struct Q4_0;

impl Codec for Q4_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "q4_0", block_len: 32, block_bytes: 18, gguf: Some(2) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f16_at(block, 0));
        half_split(&block[2..], out.codes, |q| q as i8 - 8);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q4_0 {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        let around = search::mean_square(row);
        for (i, (x, block)) in row.chunks_exact(32).zip(out.chunks_exact_mut(18)).enumerate() {
            let mut codes = [0; 32];
            let d = match importance {
                Some(v) => {
                    let w: [f32; 32] = search::column_weights(x, &v[32 * i..], around);
                    search::symmetric(x, Some(&w), 8, &mut codes)
                }
                None => {
                    // The number farthest from 0 becomes code 0: -8 steps.
                    let d = search::farthest(x) / -8.0;
                    let inverse = search::inverse(d);
                    codes = std::array::from_fn(|j| (x[j] * inverse + 8.5).min(15.0) as u8);
                    d
                }
            };
            put_f16(block, 0, d);
            put_half_split(&codes, &mut block[2..]);
        }
    }
}
