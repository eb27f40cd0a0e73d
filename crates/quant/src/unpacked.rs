//! The common form of every integer codec: what the shared matrix core eats.

use crate::Codec;

/// Numbers in a group of activations, and in a [`crate::Kind::Group32`] group of weights.
pub const GROUP: usize = 32;

/// The scale and the offset of a group: number `i` is `scale * code[i] + offset`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Group {
    /// Multiplies the codes.
    pub scale: f32,
    /// Added to each number; 0 for symmetric codecs, minus the stored minimum for those with minimums.
    pub offset: f32,
}

impl Group {
    /// A group without an offset. Its offset is -0, the one number that leaves every sum as it is, +0 and -0 too.
    pub const fn symmetric(scale: f32) -> Self {
        Self { scale, offset: -0.0 }
    }
}

/// One block as small integers and scales.
///
/// Codes lie in -128..=127 in the order of the numbers in the row, and `groups` holds one entry per 32 or 16 codes
/// ([`crate::Kind`]). Fractions are folded into scales (a code of 2.5 steps becomes 5 half steps), so a dot product
/// of codes with quantized activations is an exact integer.
#[derive(Debug)]
pub struct Unpacked<'a> {
    /// `block_len` codes.
    pub codes: &'a mut [i8],
    /// `block_len / 32` or `block_len / 16` groups.
    pub groups: &'a mut [Group],
}

/// Decodes a block of `LEN` numbers in `GROUPS` groups by way of its integer form: `scale * code`, rounded, then
/// `+ offset`, rounded. That is the order of the reference decoders, so the numbers equal theirs bit for bit.
pub fn decode_unpacked<const LEN: usize, const GROUPS: usize>(
    codec: &impl Codec,
    block: &[u8],
    out: &mut [f32],
) {
    let mut codes = [0; LEN];
    let mut groups = [Group::default(); GROUPS];
    codec.unpack(block, &mut Unpacked { codes: &mut codes, groups: &mut groups });
    let len = LEN / GROUPS;
    for ((out, codes), group) in out.chunks_exact_mut(len).zip(codes.chunks_exact(len)).zip(&groups) {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out = group.scale * f32::from(code) + group.offset;
        }
    }
}
