//! The grids of the `iq1`, `iq2` and `iq3` codecs, and how their points become codes.
//!
//! A point of a grid is eight numbers of at most four levels, or four numbers of eight levels, which `iq_grids.bin`
//! holds as a little-endian `u16`: two or four bits a number, the first lowest. `golden/iq_tables.py` writes it.

use crate::Group;

const PACKED: &[u8] = include_bytes!("iq_grids.bin");

pub static IQ2_XXS: [[i8; 8]; 256] = points(0, 2, &[8, 25, 43]);
pub static IQ2_XS: [[i8; 8]; 512] = points(256, 2, &[8, 25, 43]);
pub static IQ2_S: [[i8; 8]; 1024] = points(768, 2, &[8, 25, 43]);
pub static IQ3_XXS: [[i8; 4]; 256] = points(1792, 4, &[4, 12, 20, 28, 36, 44, 52, 62]);
pub static IQ3_S: [[i8; 4]; 512] = points(2048, 4, &[1, 3, 5, 7, 9, 11, 13, 15]);
pub static IQ1: [[i8; 8]; 2048] = points(2560, 2, &[-1, 0, 1]);

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

const fn points<const N: usize, const POINTS: usize>(
    first: usize,
    bits: usize,
    levels: &[i8],
) -> [[i8; N]; POINTS] {
    let mut points = [[0; N]; POINTS];
    let mut i = 0;
    while i < N * POINTS {
        let at = 2 * (first + i / N);
        let packed = PACKED[at] as usize | (PACKED[at + 1] as usize) << 8;
        points[i / N][i % N] = levels[packed >> (bits * (i % N)) & ((1 << bits) - 1)];
        i += 1;
    }
    points
}

/// The signs that the bits of `byte` say.
pub fn signs(byte: u8) -> &'static [i8; 8] {
    &SIGNS[usize::from(byte)]
}

/// The signs of a seven-bit index: the eighth makes the number of minus signs even.
pub fn even_signs(index: u32) -> &'static [i8; 8] {
    let index = index as u8 & 127;
    signs(index | (index.count_ones() as u8 & 1) << 7)
}

/// Writes a point with its signs.
pub fn put(point: &[i8], signs: &[i8], codes: &mut [i8]) {
    for ((code, value), sign) in codes.iter_mut().zip(point).zip(signs) {
        *code = value * sign;
    }
}

/// Writes a point of [`IQ1`] in eighths, each shifted by `shift`.
pub fn put_eighths(index: u16, shift: i8, codes: &mut [i8]) {
    for (code, value) in codes.iter_mut().zip(&IQ1[usize::from(index)]) {
        *code = 8 * value + shift;
    }
}

/// The scales of `iq2_xs` and `iq2_s`: a nibble for each 16 numbers, `d * (0.5 + nibble) / 4`.
pub fn quarter_scales(d: f32, nibbles: &[u8; 8], groups: &mut [Group]) {
    for (groups, byte) in groups.chunks_exact_mut(2).zip(nibbles) {
        let scale = |nibble: u8| Group::symmetric(d * (0.5 + f32::from(nibble)) * 0.25);
        groups.copy_from_slice(&[scale(byte & 15), scale(byte >> 4)]);
    }
}
