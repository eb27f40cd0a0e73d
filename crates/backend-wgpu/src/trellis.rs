//! EXL3's tiles as the device takes them: K bits a number, as in the file.
//!
//! A tile is 16 results by 16 numbers of a row and one circular string of `256 * K` bits. Results `p` and `p + 8` are its 32
//! elements from `32 * p` on, so two results of a piece of 16 numbers are `K` words: a unit. Its first states begin in the
//! last bits of the unit before it, the one of results `p - 1` and `p + 7`, or of the last two. Units of two results lie
//! behind one another along the row, so results are kept in the order 0, 8, 1, 9 up to 7, 15.
//! Source: see [`nibble_quant::exl3`].

use nibble_quant::{Codec, Encoded, exl3::Exl3};

/// Results of a tile, and numbers of a row in it.
pub const SIDE: usize = 16;

/// The codec of a weight that tiles can hold.
pub fn codec(weight: &Encoded) -> Option<&'static Exl3> {
    let (shape, codec) = (weight.shape(), Exl3::of(weight.codec())?);
    // Kernels read two pieces of a row, and experts' tiles are their own.
    let rows = shape.dims().len().checked_sub(2).map_or(1, |i| shape.dims()[i]);
    (rows.is_multiple_of(SIDE) && shape.row_len().is_multiple_of(2 * SIDE)).then_some(codec)
}

/// Results `first` to `first + 16` of a matrix into their units.
///
/// Returns whether their blocks are those of tiles: what two blocks hold of one string is the same.
pub fn pack(weight: &Encoded, first: usize, out: &mut [u32]) -> bool {
    let codec = codec(weight).expect("a weight that tiles hold");
    let (bits, bytes) = (codec.bits, codec.spec().block_bytes);
    let pieces = weight.shape().row_len() / SIDE;
    let mut string = String { words: [0; 64], bits: 256 * bits };
    let mut all = true;
    for piece in 0..pieces {
        let block = |column: usize| &weight.row(first + column)[piece * bytes..][..bytes];
        string.words.fill(0);
        for column in 0..SIDE {
            for run in 0..4 {
                let (_, own) = parts(block(column), run, bits);
                string.put(start(column, run) * bits, own, 4 * bits);
            }
        }
        for column in 0..SIDE {
            for run in 0..4 {
                let (before, _) = parts(block(column), run, bits);
                let at = start(column, run) * bits + string.bits - (16 - bits);
                all &= string.get(at % string.bits, 16 - bits) == before;
            }
        }
        for pair in 0..8 {
            let unit = &string.words[pair * bits..(pair + 1) * bits];
            out[(pair * pieces + piece) * bits..][..bits].copy_from_slice(unit);
        }
    }
    all
}

/// The first element of a result's run of four.
const fn start(column: usize, run: usize) -> usize {
    nibble_quant::exl3::element(column, 4 * run)
}

/// The bits of a block that a run shares with the one before it, and its own.
fn parts(block: &[u8], run: usize, bits: usize) -> (u32, u32) {
    let (first, len) = (run * (16 + 3 * bits), 16 + 3 * bits);
    let mut bytes = [0; 8];
    let held = &block[first / 8..block.len().min(first / 8 + 8)];
    bytes[..held.len()].copy_from_slice(held);
    let all = u64::from_be_bytes(bytes) << (first % 8) >> (64 - len);
    ((all >> (4 * bits)) as u32, (all & ((1 << (4 * bits)) - 1)) as u32)
}

/// A circular string of bits, the first one the highest of a word.
struct String {
    words: [u32; 64],
    bits: usize,
}

impl String {
    /// Adds `len` bits, at most 32, at a place where none are.
    fn put(&mut self, at: usize, value: u32, len: usize) {
        let shifted = u64::from(value) << (64 - len - at % 32);
        self.words[at / 32] |= (shifted >> 32) as u32;
        if at % 32 + len > 32 {
            self.words[at / 32 + 1] |= shifted as u32;
        }
    }

    /// `len` bits, at most 32.
    fn get(&self, at: usize, len: usize) -> u32 {
        let next = self.words[(at + 32) % self.bits / 32];
        let both = u64::from(self.words[at / 32]) << 32 | u64::from(next);
        (both << (at % 32) >> 32 >> (32 - len)) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::exl3::EXL3;
    use nibble_tensor::Shape;
    use nibble_testkit::Rng;

    /// Two by three tiles of random words, and a matrix of their blocks.
    fn matrix(codec: &'static Exl3) -> (Vec<Vec<u16>>, Encoded) {
        let mut rng = Rng::new(codec.bits as u64);
        let tiles: Vec<Vec<u16>> =
            (0..8).map(|_| (0..16 * codec.bits).map(|_| rng.below(1 << 16) as u16).collect()).collect();
        let bytes = codec.spec().block_bytes;
        let mut blocks = vec![0; 32 * 4 * bytes];
        for (i, block) in blocks.chunks_exact_mut(bytes).enumerate() {
            let (row, piece) = (i / 4, i % 4);
            codec.put(&tiles[row / 16 * 4 + piece], row % 16, block);
        }
        let shape = Shape::from([32, 64]);
        (tiles, Encoded::new("w", shape, codec, blocks.into()).unwrap())
    }

    #[test]
    fn tiles_come_back_word_for_word() {
        for codec in EXL3 {
            let (tiles, weight) = matrix(codec);
            let bits = codec.bits;
            for half in 0..2 {
                let mut out = vec![0; 8 * 4 * bits];
                assert!(pack(&weight, 16 * half, &mut out), "{}", codec.spec().name);
                for piece in 0..4 {
                    let found = (0..8).flat_map(|pair| {
                        out[(pair * 4 + piece) * bits..][..bits]
                            .iter()
                            .flat_map(|w| [*w as u16, (w >> 16) as u16])
                    });
                    assert_eq!(found.collect::<Vec<_>>(), tiles[half * 4 + piece], "{}", codec.spec().name);
                }
            }
        }
    }

    #[test]
    fn blocks_of_no_tile_are_found_out() {
        for codec in EXL3 {
            let (_, weight) = matrix(codec);
            let mut bytes: Vec<u8> = (0..32).flat_map(|row| weight.row(row).to_vec()).collect();
            // The last bit that the first run of result 5 shares with the one before it.
            let at = 5 * 4 * codec.spec().block_bytes * 8 + 15 - codec.bits;
            bytes[at / 8] ^= 0x80 >> (at % 8);
            let weight = Encoded::new("w", weight.shape(), codec, bytes.into()).unwrap();
            assert!(!pack(&weight, 0, &mut vec![0; 32 * codec.bits]), "{}", codec.spec().name);
        }
    }
}
