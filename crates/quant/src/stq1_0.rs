//! `stq1_0`: 256 ternary numbers, exactly one zero in each four, under one half-precision scale.
//!
//! Block, 42 bytes, little-endian: `qs: [u8; 32]` at 0, `sign: [u8; 8]` at 32, `d: f16` at 40. Group g of four has its
//! code in nibble g % 2 of `qs[g / 2]`: the high two bits say which is zero; the others, in order, are +1, -1 if bit 0 is
//! set, -1 if bit 1 is set; bit g % 8 of `sign[g / 8]` negates all three. Number p of group g is number
//! 64(g / 16) + g % 16 + 16p of the block, times `d`. Source: Tencent AngelSlim's GGUF files, tensor type 43.

use crate::fields::f16_at;
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The four numbers of each code, then of each code negated.
static FOURS: [[i8; 4]; 32] = {
    let mut fours = [[0; 4]; 32];
    let mut i = 0;
    while i < 32 {
        let sign = if i & 16 == 0 { 1 } else { -1 };
        let others = [sign, if i & 1 == 0 { sign } else { -sign }, if i & 2 == 0 { sign } else { -sign }];
        let zero = i >> 2 & 3;
        let mut k = 0;
        while k < 3 {
            fours[i][if k < zero { k } else { k + 1 }] = others[k];
            k += 1;
        }
        i += 1;
    }
    fours
};

/// The codec.
pub struct Stq1_0;

impl Codec for Stq1_0 {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "stq1_0", block_len: 256, block_bytes: 42, gguf: Some(43) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<256, 8>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups.fill(Group::symmetric(f16_at(block, 40)));
        for g in 0..64 {
            let code = block[g / 2] >> (4 * (g % 2)) & 15;
            let negative = block[32 + g / 8] >> (g % 8) & 1;
            let four = &FOURS[usize::from(code | negative << 4)];
            for (p, &value) in four.iter().enumerate() {
                out.codes[64 * (g / 16) + g % 16 + 16 * p] = value;
            }
        }
    }
}
