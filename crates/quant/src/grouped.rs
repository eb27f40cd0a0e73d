//! `affineB_G_T` and `zeroB_G_T`: groups of G integers of B bits under two numbers of type T.
//!
//! What MLX, GPTQ, AWQ, compressed-tensors and EXL2 keep in separate tensors (codes, scales, biases or zeros) stands here
//! group by group along a row, so that a kernel reads one stream. A group is a block: `scale: T`, then `bias: T` (affine)
//! or `zero: T` (an integer), then the codes of each 32 numbers in planes, as many as B has bits set: B = 8 is 32 bytes;
//! otherwise 4 bits in 16 bytes if B has a 4 (number j < 16 in the low nibble of byte j, number j + 16 in its high one),
//! then 2 bits in 8 bytes if it has a 2 (number j in the bits from `2(j % 4)` of byte j / 4), then one bit in 4 bytes if
//! it has a 1 (number j in bit j % 8 of byte j / 8); the first plane holds the lowest bits of a code. All little-endian.
//!
//! Number i is `q * scale + bias`, rounded twice, or `(q - zero) * scale`, rounded once.
//!
//! What MLX writes itself (affine, 2 to 6 and 8 bits) is rounded as its `quantize` does: the end of a group's range that is
//! farther from zero becomes a multiple of the scale. Source: ml-explore/mlx, `mlx/backend/cpu/quantized.cpp`.

use crate::fields::{half_split, put_half_split};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked};
use half::{bf16, f16};

/// What the second number of a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Second {
    /// Added to the product of scale and code.
    Bias,
    /// Taken from the code.
    Zero,
}

/// The type of a group's two numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Float {
    /// IEEE half precision.
    F16,
    /// The upper half of single precision.
    Bf16,
    /// Single precision.
    F32,
}

impl Float {
    /// Bytes of one number.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
        }
    }

    /// The number in `bytes`.
    ///
    /// # Panics
    /// If they are fewer than [`Float::bytes`].
    pub fn read(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F16 => f16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            Self::Bf16 => bf16::from_le_bytes([bytes[0], bytes[1]]).to_f32(),
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]),
        }
    }

    /// Writes a number, rounded to the nearest.
    ///
    /// # Panics
    /// If there is less room than [`Float::bytes`].
    pub fn write(self, x: f32, out: &mut [u8]) {
        match self {
            Self::F16 => out[..2].copy_from_slice(&f16::from_f32(x).to_le_bytes()),
            Self::Bf16 => out[..2].copy_from_slice(&bf16::from_f32(x).to_le_bytes()),
            Self::F32 => out[..4].copy_from_slice(&x.to_le_bytes()),
        }
    }
}

/// One of the codecs.
#[derive(Debug)]
pub struct Grouped {
    spec: &'static Spec,
    /// Bits of a code, 1 to 8.
    pub bits: usize,
    /// What the second number is.
    pub second: Second,
    /// The type of scale and second number.
    pub float: Float,
}

/// What MLX takes for the scale of a group whose numbers are all alike.
const SMALLEST_SCALE: f32 = 1e-7;

/// Lengths of groups, longest first.
pub const GROUPS: [usize; 3] = [128, 64, 32];

impl Grouped {
    /// The codec of codes of `bits` bits in groups of `group`.
    pub fn find(bits: usize, group: usize, second: Second, float: Float) -> Option<&'static Self> {
        let is =
            |c: &&Self| c.bits == bits && c.spec.block_len == group && c.second == second && c.float == float;
        GROUPED.iter().find(is)
    }

    /// The one that `codec` is, if it is one.
    pub fn of(codec: &dyn Codec) -> Option<&'static Self> {
        GROUPED.iter().find(|grouped| grouped.spec == codec.spec())
    }

    /// Writes a block: scale and second number, and one code for each number of the group.
    pub fn put(&self, scale: f32, second: f32, codes: &[u8], block: &mut [u8]) {
        let size = self.float.bytes();
        self.float.write(scale, block);
        self.float.write(second, &mut block[size..]);
        let planes = block[2 * size..].chunks_exact_mut(4 * self.bits);
        for (codes, mut out) in codes.chunks_exact(32).zip(planes) {
            if self.bits == 8 {
                out.copy_from_slice(codes);
                continue;
            }
            let mut shift = 0;
            for width in [4, 2, 1].into_iter().filter(|width| self.bits & width != 0) {
                let (plane, rest) = out.split_at_mut(4 * width);
                let shifted: [u8; 32] = std::array::from_fn(|j| codes[j] >> shift);
                match width {
                    4 => put_half_split(&shifted, plane),
                    2 => plane.iter_mut().zip(shifted.as_chunks::<4>().0).for_each(|(byte, q)| {
                        *byte = (0..4).fold(0, |byte, j| byte | (q[j] & 3) << (2 * j));
                    }),
                    _ => plane.iter_mut().zip(shifted.as_chunks::<8>().0).for_each(|(byte, q)| {
                        *byte = (0..8).fold(0, |byte, j| byte | (q[j] & 1) << j);
                    }),
                }
                shift += width;
                out = rest;
            }
        }
    }

    /// The codes of 32 numbers.
    fn codes(&self, planes: &[u8]) -> [u8; 32] {
        let mut codes = [0; 32];
        if self.bits == 8 {
            codes.copy_from_slice(planes);
            return codes;
        }
        let (mut rest, mut shift) = (planes, 0);
        if self.bits & 4 != 0 {
            let mut nibbles = [0; 32];
            half_split(&rest[..16], &mut nibbles, |q| q as i8);
            codes = nibbles.map(|q| q as u8);
            (rest, shift) = (&rest[16..], 4);
        }
        if self.bits & 2 != 0 {
            for (codes, &byte) in codes.as_chunks_mut::<4>().0.iter_mut().zip(&rest[..8]) {
                (0..4).for_each(|j| codes[j] |= (byte >> (2 * j) & 3) << shift);
            }
            (rest, shift) = (&rest[8..], shift + 2);
        }
        if self.bits & 1 != 0 {
            for (codes, &byte) in codes.as_chunks_mut::<8>().0.iter_mut().zip(&rest[..4]) {
                (0..8).for_each(|j| codes[j] |= (byte >> j & 1) << shift);
            }
        }
        codes
    }

    /// Scale and second number of a block, as they are stored, one behind the other, and its codes.
    pub fn take<'a>(&self, block: &'a [u8], codes: &mut [u8]) -> &'a [u8] {
        let (numbers, planes) = block.split_at(2 * self.float.bytes());
        for (planes, codes) in planes.chunks_exact(4 * self.bits).zip(codes.as_chunks_mut::<32>().0) {
            *codes = self.codes(planes);
        }
        numbers
    }

    /// Scale, second number and the planes of each 32 numbers.
    fn parts<'a>(&self, block: &'a [u8]) -> (f32, f32, std::slice::ChunksExact<'a, u8>) {
        let size = self.float.bytes();
        let numbers = (self.float.read(block), self.float.read(&block[size..]));
        (numbers.0, numbers.1, block[2 * size..].chunks_exact(4 * self.bits))
    }

    /// What is taken from a code to make it a small signed number.
    fn middle(&self) -> u8 {
        match self.second {
            Second::Zero => 1 << (self.bits - 1),
            Second::Bias if self.bits == 8 => 128,
            Second::Bias => 0,
        }
    }
}

impl Codec for Grouped {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        let (scale, second, planes) = self.parts(block);
        for (planes, out) in planes.zip(out.as_chunks_mut::<32>().0) {
            for (out, q) in out.iter_mut().zip(self.codes(planes)) {
                *out = match self.second {
                    Second::Bias => f32::from(q) * scale + second,
                    Second::Zero => (f32::from(q) - second) * scale,
                };
            }
        }
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        let (scale, second, planes) = self.parts(block);
        let middle = self.middle();
        let group = match self.second {
            Second::Zero if second == f32::from(middle) => Group::symmetric(scale),
            Second::Zero => Group { scale, offset: (f32::from(middle) - second) * scale },
            Second::Bias if middle == 0 => Group { scale, offset: second },
            Second::Bias => Group { scale, offset: second + scale * f32::from(middle) },
        };
        out.groups.fill(group);
        for (planes, out) in planes.zip(out.codes.as_chunks_mut::<32>().0) {
            let codes = self.codes(planes);
            out.iter_mut().zip(codes).for_each(|(out, q)| *out = q.wrapping_sub(middle) as i8);
        }
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        (self.second == Second::Bias && matches!(self.bits, 2..=6 | 8)).then_some(self)
    }
}

impl Encode for Grouped {
    fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
        let most = ((1u32 << self.bits) - 1) as f32;
        let mut codes = [0; 128];
        for (x, block) in
            row.chunks_exact(self.spec.block_len).zip(out.chunks_exact_mut(self.spec.block_bytes))
        {
            let codes = &mut codes[..x.len()];
            let (low, high) =
                x.iter().fold((f32::INFINITY, f32::NEG_INFINITY), |(a, b), &x| (a.min(x), b.max(x)));
            let below = low.abs() > high.abs();
            let width = ((high - low) / most).max(SMALLEST_SCALE);
            let (mut scale, edge) = if below { (width, low) } else { (-width, high) };
            let (steps, mut bias) = ((edge / scale).round_ties_even(), 0.0);
            if steps != 0.0 {
                (scale, bias) = (edge / steps, edge);
            }
            for (code, x) in codes.iter_mut().zip(x) {
                *code = ((x - bias) / scale).round_ties_even().clamp(0.0, most) as u8;
            }
            self.put(scale, bias, codes, block);
        }
    }
}

macro_rules! table {
    ($($bits:literal)*) => {
        [$(
            table!(@ "affine", Bias, $bits, 32), table!(@ "affine", Bias, $bits, 64),
            table!(@ "affine", Bias, $bits, 128), table!(@ "zero", Zero, $bits, 32),
            table!(@ "zero", Zero, $bits, 64), table!(@ "zero", Zero, $bits, 128),
        )*]
    };
    (@ $family:literal, $second:ident, $bits:literal, $group:literal) => {
        [
            table!(@ $family, $second, $bits, $group, F16, "f16"),
            table!(@ $family, $second, $bits, $group, Bf16, "bf16"),
            table!(@ $family, $second, $bits, $group, F32, "f32"),
        ]
    };
    (@ $family:literal, $second:ident, $bits:literal, $group:literal, $float:ident, $type:literal) => {
        Grouped {
            spec: &Spec {
                name: concat!($family, $bits, "_", $group, "_", $type),
                block_len: $group,
                block_bytes: 2 * Float::$float.bytes() + $group / 8 * $bits,
                gguf: None,
            },
            bits: $bits,
            second: Second::$second,
            float: Float::$float,
        }
    };
}

static TABLE: [[Grouped; 3]; 48] = table!(1 2 3 4 5 6 7 8);

/// All of them.
pub static GROUPED: &[Grouped] = TABLE.as_flattened();
