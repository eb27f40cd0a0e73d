//! The grids of the `iq1`, `iq2` and `iq3` codecs, and how their points become codes.
//!
//! A point of a grid is eight numbers of at most four levels, or four numbers of eight levels, which `iq_grids.bin`
//! holds as a little-endian `u16`: two or four bits a number, the first lowest. `golden/iq_tables.py` writes it.

use crate::Group;

const PACKED: &[u8] = include_bytes!("iq_grids.bin");

/// A grid as it is packed: what kernels make their own tables of.
#[derive(Clone, Copy, Debug)]
pub struct Packed {
    first: usize,
    bits: usize,
    /// What the numbers of a point stand for.
    pub levels: &'static [i8],
}

impl Packed {
    /// Point `i`: 8 levels of two bits or 4 of four, the first lowest.
    pub const fn point(&self, i: usize) -> u16 {
        let at = 2 * (self.first + i);
        PACKED[at] as u16 | (PACKED[at + 1] as u16) << 8
    }
}

/// 256 points of eight numbers.
pub const PACKED_IQ2_XXS: Packed = Packed { first: 0, bits: 2, levels: &[8, 25, 43] };
/// 512 points of eight numbers.
pub const PACKED_IQ2_XS: Packed = Packed { first: 256, ..PACKED_IQ2_XXS };
/// 1024 points of eight numbers.
pub const PACKED_IQ2_S: Packed = Packed { first: 768, ..PACKED_IQ2_XXS };
/// 256 points of four numbers.
pub const PACKED_IQ3_XXS: Packed = Packed { first: 1792, bits: 4, levels: &[4, 12, 20, 28, 36, 44, 52, 62] };
/// 512 points of four numbers.
pub const PACKED_IQ3_S: Packed = Packed { first: 2048, bits: 4, levels: &[1, 3, 5, 7, 9, 11, 13, 15] };
/// 2048 points of eight numbers.
pub const PACKED_IQ1: Packed = Packed { first: 2560, bits: 2, levels: &[-1, 0, 1] };

pub(crate) static IQ2_XXS: [[i8; 8]; 256] = points(&PACKED_IQ2_XXS);
pub(crate) static IQ2_XS: [[i8; 8]; 512] = points(&PACKED_IQ2_XS);
pub(crate) static IQ2_S: [[i8; 8]; 1024] = points(&PACKED_IQ2_S);
pub(crate) static IQ3_XXS: [[i8; 4]; 256] = points(&PACKED_IQ3_XXS);
pub(crate) static IQ3_S: [[i8; 4]; 512] = points(&PACKED_IQ3_S);
pub(crate) static IQ1: [[i8; 8]; 2048] = points(&PACKED_IQ1);

/// The eight bits of each byte as signs, lowest first: -1 where the bit is set.
static SIGNS: [[i8; 8]; 256] = {
    let mut signs = [[1; 8]; 256];
    let mut i = 0;
    while i < 256 * 8 {
        if (i / 8) >> (i % 8) & 1 == 1 {
            signs[i / 8][i % 8] = -1;
        }
        i += 1;
    }
    signs
};

const fn points<const N: usize, const POINTS: usize>(grid: &Packed) -> [[i8; N]; POINTS] {
    let mut points = [[0; N]; POINTS];
    let mut i = 0;
    while i < N * POINTS {
        let level = grid.point(i / N) as usize >> (grid.bits * (i % N)) & ((1 << grid.bits) - 1);
        points[i / N][i % N] = grid.levels[level];
        i += 1;
    }
    points
}

/// The signs that the bits of `byte` say.
pub(crate) fn signs(byte: u8) -> &'static [i8; 8] {
    &SIGNS[usize::from(byte)]
}

/// The signs of a seven-bit index: the eighth makes the number of minus signs even.
pub(crate) fn even_signs(index: u32) -> &'static [i8; 8] {
    let index = index as u8 & 127;
    signs(index | (index.count_ones() as u8 & 1) << 7)
}

/// Writes a point with its signs.
pub(crate) fn put(point: &[i8], signs: &[i8], codes: &mut [i8]) {
    for ((code, value), sign) in codes.iter_mut().zip(point).zip(signs) {
        *code = value * sign;
    }
}

/// Writes a point of [`IQ1`] in eighths, each shifted by `shift`.
pub(crate) fn put_eighths(index: u16, shift: i8, codes: &mut [i8]) {
    for (code, value) in codes.iter_mut().zip(&IQ1[usize::from(index)]) {
        *code = 8 * value + shift;
    }
}

/// The scales of `iq2_xs` and `iq2_s`: a nibble for each 16 numbers, `d * (0.5 + nibble) / 4`.
pub(crate) fn quarter_scales(d: f32, nibbles: &[u8; 8], groups: &mut [Group]) {
    for (groups, byte) in groups.chunks_exact_mut(2).zip(nibbles) {
        let scale = |nibble: u8| Group::symmetric(d * (0.5 + f32::from(nibble)) * 0.25);
        groups.copy_from_slice(&[scale(byte & 15), scale(byte >> 4)]);
    }
}
