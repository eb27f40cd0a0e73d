//! EXL3's tiles as the device takes them: K bits a number, as in the file.
//!
//! A tile is 16 results by 16 numbers of a row and one circular string of `256 * K` bits. Results `p` and `p + 8` are its 32
//! elements from `32 * p` on, so two results of a piece of 16 numbers are `K` words: a unit. Its first states begin in the
//! last bits of the unit before it, the one of results `p - 1` and `p + 7`, or of the last two. Units of two results lie
//! behind one another along the row, so results are kept in the order 0, 8, 1, 9 up to 7, 15.
//! Source: see [`nibble_quant::exl3`].

use nibble_quant::{
    Codec, Encoded,
    exl3::{self, Exl3},
};

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
pub fn pack(weight: &Encoded, first: usize, out: &mut [u32]) {
    let codec = codec(weight).expect("a weight that tiles hold");
    let (bits, bytes) = (codec.bits, codec.spec().block_bytes);
    let pieces = weight.shape().row_len() / SIDE;
    for (piece, block) in weight.row(first).chunks_exact(bytes).enumerate() {
        for (i, word) in block[exl3::LEAD..].as_chunks::<4>().0.iter().enumerate() {
            let (pair, i) = (i / bits, i % bits);
            out[(pair * pieces + piece) * bits + i] = u32::from_be_bytes(*word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::exl3::EXL3;
    use nibble_tensor::Shape;
    use nibble_testkit::Rng;

    /// Two by four tiles of random bytes, and a matrix of their blocks.
    fn matrix(codec: &'static Exl3) -> (Vec<Vec<u8>>, Encoded) {
        let mut rng = Rng::new(codec.bits as u64);
        let tiles: Vec<Vec<u8>> =
            (0..8).map(|_| (0..32 * codec.bits).map(|_| rng.bits() as u8).collect()).collect();
        let bytes = codec.spec().block_bytes;
        let mut blocks = vec![0; 8 * bytes];
        blocks.chunks_exact_mut(bytes).zip(&tiles).for_each(|(block, tile)| codec.put(tile, block));
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
                pack(&weight, 16 * half, &mut out);
                for piece in 0..4 {
                    let found = (0..8).flat_map(|pair| {
                        out[(pair * 4 + piece) * bits..][..bits].iter().flat_map(|word| word.to_le_bytes())
                    });
                    assert_eq!(found.collect::<Vec<_>>(), tiles[half * 4 + piece], "{}", codec.spec().name);
                }
            }
        }
    }
}
