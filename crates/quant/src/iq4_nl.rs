//! `iq4_nl`: 32 numbers as four-bit indices into 16 uneven levels under one half-precision scale.
//!
//! Block, 18 bytes, little-endian: `d: f16` at 0, `qs: [u8; 16]` at 2. Number j < 16 is in the low nibble of `qs[j]`,
//! number j + 16 in its high nibble; each is `d * LEVELS[q]`. Source: GGUF specification, tensor type 20.

use crate::fields::{f16_at, half_split};
use crate::{Codec, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The levels, also of `iq4_xs`: dense around 0, where most weights are.
pub const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The codec.
pub struct Iq4Nl;

impl Codec for Iq4Nl {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq4_nl", block_len: 32, block_bytes: 18, gguf: Some(20) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f16_at(block, 0));
        half_split(&block[2..], out.codes, |q| LEVELS[usize::from(q)]);
    }
}
