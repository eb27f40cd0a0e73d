//! `exl3_K_BOOK`: a trellis of K bits a number (1 to 8) in one of three codebooks, sixteen numbers a block.
//!
//! A number's state is 16 bits of a circular string of bits, shared with its neighbours in a tile of 16 by 16; its value
//! is computed from the state by the codebook, in half precision. The sixteen numbers of a tile that belong to one
//! output are four runs of four consecutive elements. A block holds each run as the `16 + 3K` bits that its states take,
//! first bit highest, one after the other and filled up to a whole byte: number j is element `j % 4` of run `j / 4`, and
//! its state the 16 bits from `run * (16 + 3K) + (j % 4) * K` on; it is input [`input`]`(j)` of the tile.
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

    /// The numbers of all states.
    fn table(self) -> &'static [f32; 1 << 16] {
        static TABLES: [LazyLock<Box<[f32; 1 << 16]>>; 3] = [
            LazyLock::new(|| all(Codebook::ThreeInst)),
            LazyLock::new(|| all(Codebook::Mcg)),
            LazyLock::new(|| all(Codebook::Mul1)),
        ];
        &TABLES[self as usize]
    }
}

fn all(book: Codebook) -> Box<[f32; 1 << 16]> {
    let numbers: Box<[f32]> = (0..=u16::MAX).map(|state| book.value(state).to_f32()).collect();
    numbers.try_into().expect("as many as there are states")
}

/// Which element of a tile is number `j` of the block of output `column`: element `8t + i` of the string belongs
/// to input `2(t % 4) + i % 2 + 8(i / 2 % 2)` and output `t / 4 + 8(i / 4)`.
pub const fn element(column: usize, j: usize) -> usize {
    // Run r of a column is t = 4 * (column % 8) + r.
    8 * (4 * (column % 8) + j / 4) + 4 * (column / 8) + j % 4
}

/// Which input of a tile number `j` of a block is: blocks keep the order of the string.
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

    /// Writes the block of output `column` (0 to 15) of a tile: `16 * bits` words as a file has them.
    pub fn put(&self, tile: &[u16], column: usize, block: &mut [u8]) {
        let bits = self.bits;
        let count = 256 * bits;
        // Words lie in pairs, the second first; each from its highest bit down; the string is circular.
        let bit = |at: usize| tile[(at / 16) ^ 1] >> (15 - at % 16) & 1;
        block.fill(0);
        for run in 0..4 {
            let first = (element(column, 4 * run) + 1) * bits + count - 16;
            for i in 0..16 + 3 * bits {
                let to = run * (16 + 3 * bits) + i;
                block[to / 8] |= (bit((first + i) % count) as u8) << (7 - to % 8);
            }
        }
    }
}

impl Codec for Exl3 {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        let table = self.book.table();
        let byte = |at: usize| u32::from(block.get(at).copied().unwrap_or(0));
        for j in 0..16 {
            let at = j / 4 * (16 + 3 * self.bits) + j % 4 * self.bits;
            let window = byte(at / 8) << 16 | byte(at / 8 + 1) << 8 | byte(at / 8 + 2);
            out[input(j)] = table[(window >> (8 - at % 8) & 0xFFFF) as usize];
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
                block_len: 16,
                block_bytes: (4usize * (16 + 3 * $bits)).div_ceil(8),
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
