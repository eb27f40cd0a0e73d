//! `iq4_nl` for NEON: `q4_0` whose nibbles are indices into a table of levels.

use super::*;

impl Load for Iq4Nl {
    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn codes<const I: usize>(chunk: &[u8]) -> [int8x16_t; 4] {
        levels(half_split(chunk, 36 * I + 2, 36 * I + 20))
    }

    #[inline]
    #[target_feature(enable = "neon")]
    unsafe fn sides(chunk: &[u8]) -> Sides {
        Sides::scales(halves(chunk, 0, 18))
    }
}

/// The levels of nibbles.
#[inline]
#[target_feature(enable = "neon")]
pub fn levels(nibbles: [uint8x16_t; 4]) -> [int8x16_t; 4] {
    let table = vreinterpretq_s8_u8(veorq_u8(load(&LEVELS, 0), vdupq_n_u8(128)));
    nibbles.map(|nibbles| vqtbl1q_s8(table, nibbles))
}
