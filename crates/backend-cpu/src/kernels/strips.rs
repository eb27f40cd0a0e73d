//! Ternary numbers as kernels read them fastest: sixteen rows at a time, three numbers in five bits or two in four.
//!
//! Files keep five ternary numbers in a byte, 1.6 bits each, and to divide a byte takes more instructions than its products.
//! Looked up by five bits, three numbers take 1.67, and sixteen rows side by side need no additions across: a lane of 32 bits
//! holds four numbers of one row. Matrices are written anew in this form when a plan is made.
//!
//! A strip holds 896 bytes for each chunk of 256 numbers, then the scales of each chunk. Of a chunk, byte `4 r + p` of vector
//! `v` (64 bytes, of eight) belongs to number `4 v + p` of each group of 32 of row `r`; a code of three groups `a`, `b`, `c` is
//! `a + 3 b + 9 c`, of two `a + 3 b`, of numbers 0, 1, 2:
//!
//! | bytes | |
//! |---|---|
//! | 0 to 511 | vectors 0 to 7: the five bits of the codes of groups 0 to 2 and, above them, the low three of groups 3 to 5 |
//! | 512 to 767 | vectors 0 to 3: the codes of groups 6 and 7 and, above them, those of vectors 4 to 7 |
//! | 768 to 895 | the upper two bits of the codes of groups 3 to 5: those of vectors 0 to 3 above each other, and of 4 to 7 |

use super::activations::{CHUNK, chunks};
use nibble_quant::{Codec, Group, Unpacked};

/// Rows of a strip.
pub const STRIP_ROWS: usize = 16;

/// Bytes of the codes of a chunk of a strip.
pub const CODES: usize = 896;

/// Codes in a vector: four of each row.
const VECTOR: usize = 4 * STRIP_ROWS;

/// Numbers in a group.
const GROUP: usize = 32;

/// What strips need to know of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Numbers under one half-precision scale: 256 or 128.
    pub block_len: usize,
    /// Where the scale is in a block of the file.
    pub scale_at: usize,
}

impl Layout {
    /// Bytes of the scales of a chunk: a vector of 16 for each of its blocks.
    pub const fn side_bytes(self) -> usize {
        CHUNK / self.block_len * 2 * STRIP_ROWS
    }

    /// Bytes of a strip: a multiple of 64.
    pub const fn bytes(self, row_len: usize) -> usize {
        (chunks(row_len) * (CODES + self.side_bytes())).next_multiple_of(64)
    }

    /// Writes a strip: up to sixteen rows of blocks of `codec`. What has no row or number is 0.
    pub fn write<'a>(self, codec: &dyn Codec, rows: impl Iterator<Item = &'a [u8]> + Clone, to: &mut [u8]) {
        let block_bytes = codec.spec().block_bytes;
        let row_len = rows.clone().next().map_or(0, |row| row.len() / block_bytes * self.block_len);
        let (codes, sides) = to.split_at_mut(chunks(row_len) * CODES);
        let blocks = CHUNK / self.block_len;
        let sides = sides.chunks_exact_mut(self.side_bytes());
        for (q, (codes, sides)) in codes.chunks_exact_mut(CODES).zip(sides).enumerate() {
            let mut digits = [[1; CHUNK]; STRIP_ROWS];
            sides.fill(0);
            for (r, (row, digits)) in rows.clone().zip(&mut digits).enumerate() {
                let row = row.chunks_exact(block_bytes).skip(q * blocks).take(blocks);
                for (i, (block, digits)) in row.zip(digits.chunks_exact_mut(self.block_len)).enumerate() {
                    let (mut numbers, mut groups) = ([0; CHUNK], [Group::default(); CHUNK / GROUP]);
                    let numbers = &mut numbers[..self.block_len];
                    let groups = &mut groups[..self.block_len / GROUP];
                    codec.unpack(block, &mut Unpacked { codes: numbers, groups });
                    digits.iter_mut().zip(numbers).for_each(|(digit, number)| *digit = (*number + 1) as u8);
                    sides[(i * STRIP_ROWS + r) * 2..][..2].copy_from_slice(&block[self.scale_at..][..2]);
                }
            }
            pack(&digits, codes);
        }
    }
}

/// Writes the codes of a chunk.
fn pack(digits: &[[u8; CHUNK]; STRIP_ROWS], to: &mut [u8]) {
    to.fill(0);
    let (threes, rest) = to.split_at_mut(8 * VECTOR);
    let (twos, upper) = rest.split_at_mut(4 * VECTOR);
    for (r, digits) in digits.iter().enumerate() {
        for n in 0..GROUP {
            let (v, at) = (n / 4, 4 * r + n % 4);
            let digit = |group: usize| digits[group * GROUP + n];
            let [a, b] = [0, 3].map(|group| digit(group) + 3 * digit(group + 1) + 9 * digit(group + 2));
            threes[v * VECTOR + at] = a | b << 5;
            upper[v / 4 * VECTOR + at] |= b >> 3 << (2 * (v % 4));
            twos[v % 4 * VECTOR + at] |= (digit(6) + 3 * digit(7)) << (v / 4 * 4);
        }
    }
}
