//! Weight encodings: bytes <-> numbers, one file each, in plain Rust.
//!
//! Nothing above this crate knows a bit order. A codec is a [`Codec`]; the built-in ones are in [`CODECS`], and a
//! library user adds more to a [`Registry`] at run time.
#![forbid(unsafe_code)]

mod encoded;
mod error;
mod q4_0;
mod q8_0;
mod registry;
mod unpacked;

pub use encoded::{Encoded, byte_len};
pub use error::{Error, Problem};
pub use registry::Registry;
pub use unpacked::{GROUP, Group, Unpacked};

/// The geometry and the names of an encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The name that users, files and reports use, in lower case: `q4_0`.
    pub name: &'static str,
    /// Numbers in a block; a row is a whole number of blocks.
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
/// must agree: `decode(i) == scale * code(i) + offset` up to the rounding of `decode`.
pub trait Codec: Send + Sync {
    /// Geometry and names.
    fn spec(&self) -> &'static Spec;

    /// How its numbers enter a dot product. With `Float`, `unpack` is never called.
    fn kind(&self) -> Kind;

    /// Decodes one block (`spec().block_bytes`) into `spec().block_len` numbers.
    fn decode(&self, block: &[u8], out: &mut [f32]);

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
    /// Encodes one row of whole blocks. `importance` holds a weight for each column, or nothing.
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]);
}

/// Every built-in codec.
pub static CODECS: &[&dyn Codec] = &[&q4_0::Q4_0, &q8_0::Q8_0];

/// The built-in codec of that name.
///
/// # Panics
/// If there is none: for names written in code. Use [`Registry::by_name`] for names that come from outside.
pub fn codec(name: &str) -> &'static dyn Codec {
    *CODECS.iter().find(|c| c.spec().name == name).expect("a built-in codec")
}
