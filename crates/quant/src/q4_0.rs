//! `q4_0`: 32 numbers of four bits, centred on 8, under one half-precision scale.
//!
//! Block, 18 bytes, little-endian: `d: f16` at 0, `qs: [u8; 16]` at 2. Number j < 16 is in the low nibble of
//! `qs[j]`, number j + 16 in its high nibble; each is `(q - 8) * d`. Source: GGUF specification, tensor type 2.

use crate::{Codec, Encode, Group, Kind, Spec, Unpacked};
use half::f16;

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
        let (d, qs) = block.split_at(2);
        let d = f16::from_le_bytes([d[0], d[1]]).to_f32();
        for (j, &q) in qs.iter().enumerate() {
            out[j] = f32::from((q & 15) as i8 - 8) * d;
            out[j + 16] = f32::from((q >> 4) as i8 - 8) * d;
        }
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (d, qs) = block.split_at(2);
        out.groups[0] = Group { scale: f16::from_le_bytes([d[0], d[1]]).to_f32(), offset: 0.0 };
        for (j, &q) in qs.iter().enumerate() {
            out.codes[j] = (q & 15) as i8 - 8;
            out.codes[j + 16] = (q >> 4) as i8 - 8;
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Q4_0 {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        for (x, block) in row.chunks_exact(32).zip(out.chunks_exact_mut(18)) {
            // The first element of the largest magnitude, with its sign, becomes code 0: -8 steps.
            let far = x.iter().fold(0.0f32, |far, &x| if x.abs() > far.abs() { x } else { far });
            let d = far / -8.0;
            let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
            let code = |x: f32| (x * inverse + 8.5).min(15.0) as u8;
            block[..2].copy_from_slice(&f16::from_f32(d).to_le_bytes());
            for (q, (&lo, &hi)) in block[2..].iter_mut().zip(x[..16].iter().zip(&x[16..])) {
                *q = code(lo) | code(hi) << 4;
            }
        }
    }
}
