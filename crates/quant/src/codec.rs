//! The contract: what an encoding says of itself.

use crate::Unpacked;

/// The geometry and the names of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The name that users, files and reports use, in lower case: `q4_0`.
    pub name: &'static str,
    /// Numbers in a block; a row, or [`Codec::rows`] of them, is a whole number of blocks.
    pub block_len: usize,
    /// Bytes in a block.
    pub block_bytes: usize,
    /// The tensor type id in GGUF files, if it has one.
    pub gguf: Option<u32>,
}

/// How the numbers of a codec enter a dot product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// As numbers: `decode` gives exactly what is stored (f32, f16, bf16).
    Float,
    /// As small integers with a scale, and perhaps an offset, for every 32 numbers.
    Group32,
    /// The same for every 16 numbers.
    Group16,
}

/// One weight encoding.
///
/// `decode` is the meaning; `unpack` says the same as integers, scales and offsets for the integer dot product; both
/// must agree: `decode(i) == scale * code(i) + offset` up to the rounding of `decode`. A codec for which that holds
/// bit for bit writes only `unpack` and decodes by [`crate::decode_unpacked`].
pub trait Codec: Send + Sync {
    /// Geometry and names.
    fn spec(&self) -> &'static Spec;

    /// How its numbers enter a dot product. With `Float`, `unpack` is never called.
    fn kind(&self) -> Kind;

    /// Rows that share a block: 1 for nearly all. With more, a block holds as many numbers of each, and a matrix a whole
    /// number of such strips of rows, one strip after the other.
    fn rows(&self) -> usize {
        1
    }

    /// Bytes of a strip of [`Self::rows`] rows of `row_len` numbers.
    fn strip_bytes(&self, row_len: usize) -> usize {
        let spec = self.spec();
        row_len / (spec.block_len / self.rows()) * spec.block_bytes
    }

    /// Decodes one block (`spec().block_bytes`) into `spec().block_len` numbers, row after row.
    fn decode(&self, block: &[u8], out: &mut [f32]);

    /// Decodes whole blocks, as many as `row` has: `decode` for each, behind one virtual call.
    fn decode_row(&self, row: &[u8], out: &mut [f32]) {
        let spec = self.spec();
        for (block, out) in row.chunks_exact(spec.block_bytes).zip(out.chunks_exact_mut(spec.block_len)) {
            self.decode(block, out);
        }
    }

    /// Decodes row `row` of a strip of [`Self::rows`] rows.
    fn decode_row_of(&self, row: usize, strip: &[u8], out: &mut [f32]) {
        assert_eq!(row, 0, "a strip of {} is one row", self.spec().name);
        self.decode_row(strip, out);
    }

    /// Writes one block as integers and scales: `spec().block_len / group length` groups, see [`Unpacked`].
    ///
    /// A `Float` codec has no integer form and leaves this out.
    fn unpack(&self, _block: &[u8], _out: &mut Unpacked<'_>) {
        unreachable!("{} says that it has no integer form", self.spec().name)
    }

    /// The other direction, where a published rounding exists.
    fn encoder(&self) -> Option<&dyn Encode> {
        None
    }
}

/// Rounds numbers into a codec, by the published rounding, so that files match other writers bit for bit.
pub trait Encode: Send + Sync {
    /// Encodes one row of whole blocks.
    ///
    /// `importance` holds a weight for each column, or nothing; a codec without a published weighted rounding does
    /// not look at it.
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]);
}
