//! The common form of every integer codec: what the shared matrix core eats.

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
