//! `exl3_K_BOOK`: a trellis of K bits a number (1 to 8) in one of three codebooks, a tile of 16 by 16 numbers a block.
//!
//! A number's state is 16 bits of a circular string of `256 K` bits, shared with its neighbours in the tile; its value is
//! computed from the state by the codebook, in half precision. A block serves sixteen rows: it holds the last two bytes of
//! the string and then the string, first bit highest, so that the state of element e is the 16 bits from `(e + 1) * K` on.
//! Number j of output n of the tile is element [`element`]`(n, j)`, and input [`input`]`(j)`.
//! Source: turboderp-org/exllamav3, `codebook.cuh`, `exl3_dq.cuh`.

use crate::{Codec, Kind, Spec};
use half::f16;
use std::sync::LazyLock;

/// How a state becomes a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Codebook {
    /// A multiplication, an addition, and the sum of two halves.
    ThreeInst,
    /// Another multiplier, and the sum of two halves.
    Mcg,
    /// A multiplication, and the sum of four bytes.
    Mul1,
}

impl Codebook {
    /// The half-precision number of a state.
    pub fn value(self, state: u16) -> f16 {
        let state = u32::from(state);
        let mixed = match self {
            Self::ThreeInst => state.wrapping_mul(89_226_354).wrapping_add(64_248_484),
            Self::Mcg => state.wrapping_mul(0xCBAC_1FED),
            Self::Mul1 => {
                let bytes = state.wrapping_mul(0x83DC_D12D).to_le_bytes();
                let sum: u32 = bytes.into_iter().map(u32::from).sum();
                let (step, start) = (f16::from_bits(0x1EEE), f16::from_bits(0xC931));
                // Product and sum are exact in double precision; one rounding.
                return f16::from_f64(f64::from(1024 + sum) * step.to_f64() + start.to_f64());
            }
        };
        let mixed = (mixed & 0x8FFF_8FFF) ^ 0x3B60_3B60;
        let half = |bits: u32| f16::from_bits(bits as u16).to_f32();
        f16::from_f32(half(mixed) + half(mixed >> 16))
    }

    /// The number of a state as an integer: it is `scale * code + offset` ([`Self::scale_and_offset`]), in `Mul1` up to its
    /// rounding to half precision.
    pub fn code(self, state: u16) -> i16 {
        match self {
            // Numbers below 4 in multiples of 2^-13.
            Self::ThreeInst | Self::Mcg => (self.value(state).to_f32() * 8192.0) as i16,
            Self::Mul1 => {
                let bytes = u32::from(state).wrapping_mul(0x83DC_D12D).to_le_bytes();
                bytes.into_iter().map(i16::from).sum::<i16>() - 510
            }
        }
    }

    /// What turns codes into numbers.
    pub const fn scale_and_offset(self) -> (f32, f32) {
        match self {
            Self::ThreeInst | Self::Mcg => (1.0 / 8192.0, 0.0),
            // 0x1EEE is 1774 * 2^-18 and 0xC931 is -2721792 * 2^-18: what 1024 + 510 comes to is -476 * 2^-18.
            Self::Mul1 => (1774.0 / 262_144.0, -476.0 / 262_144.0),
        }
    }

    /// The codes of all states.
    pub fn codes(self) -> &'static [i16; 1 << 16] {
        static TABLES: [LazyLock<Box<[i16; 1 << 16]>>; 3] = [
            LazyLock::new(|| all(|state| Codebook::ThreeInst.code(state))),
            LazyLock::new(|| all(|state| Codebook::Mcg.code(state))),
            LazyLock::new(|| all(|state| Codebook::Mul1.code(state))),
        ];
        &TABLES[self as usize]
    }

    /// The numbers of all states.
    fn table(self) -> &'static [f32; 1 << 16] {
        static TABLES: [LazyLock<Box<[f32; 1 << 16]>>; 3] = [
            LazyLock::new(|| all(|state| Codebook::ThreeInst.value(state).to_f32())),
            LazyLock::new(|| all(|state| Codebook::Mcg.value(state).to_f32())),
            LazyLock::new(|| all(|state| Codebook::Mul1.value(state).to_f32())),
        ];
        &TABLES[self as usize]
    }
}

fn all<T>(of: impl Fn(u16) -> T) -> Box<[T; 1 << 16]> {
    let all: Box<[T]> = (0..=u16::MAX).map(of).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("as many as there are states"))
}

/// Rows, and numbers of each, in a tile.
pub const TILE: usize = 16;

/// Bytes in front of the string of a block.
pub const LEAD: usize = 2;

/// Which element of a tile is number `j` of output `column`: element `8t + i` of the string belongs to input
/// `2(t % 4) + i % 2 + 8(i / 2 % 2)` and output `t / 4 + 8(i / 4)`.
pub const fn element(column: usize, j: usize) -> usize {
    // Run r of a column is t = 4 * (column % 8) + r.
    8 * (4 * (column % 8) + j / 4) + 4 * (column / 8) + j % 4
}

/// Which input of a tile number `j` of an output is: numbers keep the order of the string.
pub const fn input(j: usize) -> usize {
    2 * (j / 4) + j % 2 + 8 * (j % 4 / 2)
}

/// One of the codecs.
pub struct Exl3 {
    spec: &'static Spec,
    /// Bits of a number.
    pub bits: usize,
    /// The codebook.
    pub book: Codebook,
}

impl Exl3 {
    /// The codec of `bits` bits in a codebook.
    pub fn find(bits: usize, book: Codebook) -> Option<&'static Self> {
        EXL3.iter().find(|c| c.bits == bits && c.book == book)
    }

    /// The codec as one of the family, if it is one.
    pub fn of(codec: &dyn Codec) -> Option<&'static Self> {
        EXL3.iter().find(|own| own.spec.name == codec.spec().name)
    }

    /// Writes the block of a tile: `32 * bits` bytes as a file has them.
    pub fn put(&self, tile: &[u8], block: &mut [u8]) {
        let (lead, string) = block.split_at_mut(LEAD);
        // Words of 16 bits lie in pairs, the second first; each from its highest bit down.
        for (to, word) in string.as_chunks_mut::<4>().0.iter_mut().zip(tile.as_chunks::<4>().0) {
            *to = u32::from_le_bytes(*word).to_be_bytes();
        }
        lead.copy_from_slice(&string[string.len() - LEAD..]);
    }

    /// What `table` has for the states of output `column` of a tile, in the order of the string.
    #[inline(always)]
    pub fn look_up<T: Copy>(&self, block: &[u8], column: usize, table: &[T; 1 << 16]) -> [T; TILE] {
        let mut found = [table[0]; TILE];
        for (run, found) in found.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            let first = (element(column, 4 * run) + 1) * self.bits;
            let rest = &block[first / 8..];
            // Four states take at most 40 bits; what comes behind the block does not count.
            let bytes = rest.first_chunk::<8>().copied().unwrap_or_else(|| {
                let mut bytes = [0; 8];
                bytes[..rest.len()].copy_from_slice(rest);
                bytes
            });
            let window = u64::from_be_bytes(bytes) << (first % 8);
            for (i, found) in found.iter_mut().enumerate() {
                *found = table[usize::from((window >> (48 - i * self.bits)) as u16)];
            }
        }
        found
    }
}

impl Codec for Exl3 {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn rows(&self) -> usize {
        TILE
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        for (column, out) in out.chunks_exact_mut(TILE).enumerate() {
            self.decode_row_of(column, block, out);
        }
    }

    fn decode_row_of(&self, row: usize, strip: &[u8], out: &mut [f32]) {
        let table = self.book.table();
        for (block, out) in strip.chunks_exact(self.spec.block_bytes).zip(out.chunks_exact_mut(TILE)) {
            let numbers = self.look_up(block, row, table);
            numbers.into_iter().enumerate().for_each(|(j, number)| out[input(j)] = number);
        }
    }
}

macro_rules! table {
    ($($bits:literal)*) => {
        [$([
            table!(@ $bits, ThreeInst, "3inst"), table!(@ $bits, Mcg, "mcg"), table!(@ $bits, Mul1, "mul1"),
        ],)*]
    };
    (@ $bits:literal, $book:ident, $name:literal) => {
        Exl3 {
            spec: &Spec {
                name: concat!("exl3_", $bits, "_", $name),
                block_len: TILE * TILE,
                block_bytes: LEAD + 32 * $bits,
                gguf: None,
            },
            bits: $bits,
            book: Codebook::$book,
        }
    };
}

static TABLE: [[Exl3; 3]; 8] = table!(1 2 3 4 5 6 7 8);

/// All of them.
pub static EXL3: &[Exl3] = TABLE.as_flattened();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_numbers_up_to_their_last_rounding() {
        for book in [Codebook::ThreeInst, Codebook::Mcg, Codebook::Mul1] {
            let (scale, offset) = book.scale_and_offset();
            for state in 0..=u16::MAX {
                let exact =
                    f64::from(scale) * f64::from(book.codes()[usize::from(state)]) + f64::from(offset);
                assert_eq!(f16::from_f64(exact), book.value(state), "{book:?}, state {state}");
                assert!(
                    book == Codebook::Mul1 || exact == book.value(state).to_f64(),
                    "{book:?}, state {state}"
                );
            }
        }
    }
}
