//! `iq4_nl` for NEON: `q4_0` whose nibbles are indices into a table of levels.

use super::*;

impl Load for Iq4Nl {
    #[inline(always)]
    fn codes(chunk: &[u8], i: usize) -> [int8x16_t; 4] {
        levels(half_split(chunk, 36 * i + 2, 36 * i + 20))
    }

    #[inline(always)]
    fn sides(chunk: &[u8]) -> Sides {
        Sides::scales(halves(chunk, 0, 18))
    }
}

/// The levels of nibbles.
#[inline(always)]
pub fn levels(nibbles: [uint8x16_t; 4]) -> [int8x16_t; 4] {
    static LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
    let table = load_codes(&LEVELS, 0);
    nibbles.map(|nibbles| vqtbl1q_s8(table, nibbles))
}
