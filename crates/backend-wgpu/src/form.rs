//! How a weight lies on the device: planes of codes with scales, or plain floats.
//!
//! Whatever the codec, its integer form ([`nibble_quant::Codec::unpack`]) says which codes occur; the planes take just
//! the bits that tell these apart. A row is cut into halves of 16 numbers, the unit that kernels read:
//!
//! | plane | words for 16 numbers | number `i` |
//! |---|---|---|
//! | 8 bits | 4 | byte `i % 4` of word `i / 4` |
//! | 4 bits | 2 | word `i / 8`, byte `i % 4`, nibble `i / 4 % 2` |
//! | 2 bits | 1 | byte `i % 4`, pair `i / 4` |
//! | 1 bit | 1/2 (a word has 32 numbers) | byte `i % 4`, bit `i / 4` of the 32 |
//!
//! Planes add up from the widest to the narrowest: 6 bits are 4 and 2.

use crate::trellis;
use half::{bf16, f16};
use nibble_quant::{Codec, Encoded, Group, Kind, Unpacked, exl3::Codebook, f8_scaled::Layout};

/// Widths that planes have, from the lowest bits of a code on.
pub const WIDTHS: [u32; 4] = [8, 4, 2, 1];

/// Words that 16 numbers take in a plane, times two.
pub const fn half_words(width: u32) -> usize {
    width as usize
}

/// The numbers that a code stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Codes {
    /// `min + step * code`.
    Even {
        /// The smallest; where groups have offsets, these hold it.
        min: i32,
        /// From one to the next; scales hold it.
        step: i32,
    },
    /// An entry of a table.
    Table(Vec<i8>),
    /// The code itself, signed.
    Signed,
}

/// How a matrix is kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Planes of codes, a half-precision scale for every group.
    Planes {
        /// Bits of a code: 1 to 8.
        bits: u32,
        /// What they mean.
        codes: Codes,
        /// Numbers in a group: 32 or 16.
        group: usize,
        /// Whether groups have an offset.
        offsets: bool,
    },
    /// EXL3's tiles, bit for bit: see [`crate::trellis`].
    Trellis {
        /// Bits of a number: 1 to 8.
        bits: u32,
        /// What states mean.
        book: Codebook,
        /// Whether kernels may add in half precision.
        half: bool,
    },
    /// Eight-bit floats in a plane of 8 bits, with a 32-bit scale for every group if they have one.
    F8 {
        /// Bits of the mantissa: 3, or 2.
        mantissa: u32,
        /// Numbers in a group: whole blocks of 32.
        group: Option<usize>,
    },
    /// 32-bit floats.
    F32,
    /// Half precision, two in a word.
    F16,
    /// The upper halves of 32-bit floats, two in a word.
    Bf16,
}

/// Blocks that are looked at to learn what codes a codec has.
const PROBES: usize = 4096;

impl Form {
    /// The form of a weight's tiles, if it has some, for a device that adds in half precision or does not.
    pub fn of_tiles(weight: &Encoded, half: bool) -> Option<Self> {
        trellis::codec(weight).map(|codec| Self::Trellis { bits: codec.bits as u32, book: codec.book, half })
    }

    /// The smallest form that holds what this codec can say.
    ///
    /// It is found by unpacking blocks of random bytes. A codec that says more than these show is found out when
    /// it is packed, and gets [`Form::widest`].
    pub fn of(codec: &dyn Codec) -> Self {
        let spec = codec.spec();
        if let Some(layout) = Layout::of(codec) {
            return Self::F8 {
                mantissa: layout.mantissa,
                group: (layout.lead > 0).then_some(spec.block_len),
            };
        }
        let mut state = 1u64;
        let mut block = vec![0u8; spec.block_bytes];
        let mut fill = |block: &mut [u8]| {
            for byte in block {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                *byte = (state >> 56) as u8;
            }
        };
        if codec.kind() == Kind::Float {
            let mut fits = [true; 2];
            let mut numbers = vec![0.0; spec.block_len];
            for _ in 0..PROBES {
                fill(&mut block);
                codec.decode(&block, &mut numbers);
                for &x in numbers.iter().filter(|x| !x.is_nan()) {
                    fits[0] &= f16::from_f32(x).to_f32() == x;
                    fits[1] &= bf16::from_f32(x).to_f32() == x;
                }
            }
            return match fits {
                [true, _] => Self::F16,
                [_, true] => Self::Bf16,
                _ => Self::F32,
            };
        }
        let len = if codec.kind() == Kind::Group16 { 16 } else { 32 };
        let mut codes = vec![0i8; spec.block_len];
        let mut groups = vec![Group::default(); spec.block_len / len];
        let (mut seen, mut offsets) = ([false; 256], false);
        for probe in 0..PROBES {
            fill(&mut block);
            if probe < 256 {
                block.fill(probe as u8);
            }
            codec.unpack(&block, &mut Unpacked { codes: &mut codes, groups: &mut groups });
            codes.iter().for_each(|&c| seen[(i16::from(c) + 128) as usize] = true);
            offsets |= groups.iter().any(|g| g.offset != 0.0);
        }
        let values: Vec<i32> = (0..256).filter(|&i| seen[i as usize]).map(|i| i - 128).collect();
        Self::for_codes(&values, len, offsets)
    }

    /// The form for codes that are all among `values` (rising).
    fn for_codes(values: &[i32], group: usize, offsets: bool) -> Self {
        let (min, max) = (values[0], values[values.len() - 1]);
        let step = values.iter().fold(0, |step, v| gcd(step, v - min)).max(1);
        let levels = (max - min) / step + 1;
        let bits = (levels as u32 - 1).checked_ilog2().map_or(1, |b| b + 1);
        let codes = if bits <= 7 { Codes::Even { min, step } } else { Codes::Signed };
        if bits > 4 && values.len() <= 16 {
            let table = values.iter().map(|&v| v as i8).collect();
            return Self::Planes { bits: 4, codes: Codes::Table(table), group, offsets };
        }
        let bits = if codes == Codes::Signed { 8 } else { bits };
        Self::Planes { bits, codes, group, offsets }
    }

    /// The form that holds anything that a codec of that kind can say.
    pub fn widest(kind: Kind) -> Self {
        match kind {
            Kind::Float => Self::F32,
            Kind::Group32 => Self::Planes { bits: 8, codes: Codes::Signed, group: 32, offsets: true },
            Kind::Group16 => Self::Planes { bits: 8, codes: Codes::Signed, group: 16, offsets: true },
        }
    }

    /// The planes of the codes: width, and how far its bits stand above the lowest.
    pub fn planes(&self) -> Vec<(u32, u32)> {
        let Self::Planes { bits, .. } = self else { return vec![] };
        let mut shift = 0;
        let mut planes = vec![];
        for width in WIDTHS {
            if (bits - shift) & width != 0 && bits - shift >= width {
                planes.push((width, shift));
                shift += width;
            }
        }
        planes
    }

    /// Results whose numbers cannot be told apart before they are read.
    pub fn together(&self) -> usize {
        if matches!(self, Self::Trellis { .. }) { trellis::SIDE } else { 1 }
    }

    /// Results that kernels read at once.
    pub fn at_once(&self) -> usize {
        if matches!(self, Self::Trellis { .. }) { 2 } else { 1 }
    }

    /// Whether its numbers are codes.
    pub fn is_codes(&self) -> bool {
        matches!(self, Self::Planes { .. })
    }

    /// What is added to a code, in units of its group's scale.
    pub fn zero(&self) -> f32 {
        match self {
            Self::Planes { codes: Codes::Even { min, step }, offsets: false, .. } => {
                *min as f32 / *step as f32
            }
            _ => 0.0,
        }
    }

    /// Words that `halves` halves of 16 numbers take, plane by plane: the codes' planes, then scales, then offsets.
    pub fn words(&self, halves: usize) -> Vec<usize> {
        match self {
            Self::F32 => vec![halves * 16],
            Self::F16 | Self::Bf16 => vec![halves * 8],
            Self::Trellis { bits, .. } => vec![halves * *bits as usize / 2],
            Self::F8 { group, .. } => {
                [halves * 4].into_iter().chain(group.map(|group| (halves * 16).div_ceil(group))).collect()
            }
            Self::Planes { group, offsets, .. } => {
                let mut words: Vec<_> = self
                    .planes()
                    .iter()
                    .map(|&(width, _)| (halves * half_words(width)).div_ceil(2))
                    .collect();
                let groups = halves * 16 / group;
                words.push(groups.div_ceil(2));
                words.extend(offsets.then_some(groups.div_ceil(2)));
                words
            }
        }
    }

    /// Bits of a number, with scales and offsets.
    pub fn bits(&self) -> f64 {
        // Of a row of 4096 numbers.
        self.words(256).iter().sum::<usize>() as f64 * 32.0 / 4096.0
    }

    /// In words, for reports: `4 bits, f16 scale a 32`.
    pub fn describe(&self) -> String {
        match self {
            Self::F32 => "f32".into(),
            Self::F16 => "f16".into(),
            Self::Bf16 => "bf16".into(),
            Self::F8 { mantissa, group } => {
                let scale = group.map_or(String::new(), |group| format!(", scale for every {group}"));
                let name = if *mantissa == 3 { "E4M3" } else { "E5M2" };
                format!("8 bits, {name}{scale}")
            }
            Self::Trellis { bits, book, .. } => format!("{bits} bits in a trellis, {book:?}"),
            Self::Planes { bits, codes, group, offsets } => {
                let table = if matches!(codes, Codes::Table(_)) { " by a table" } else { "" };
                let offset = if *offsets { " and offset" } else { "" };
                format!("{bits} bits{table}, scale{offset} for every {group}")
            }
        }
    }
}

/// How a weight lies on a device: in words, and the bits of a number, with scales and offsets.
pub fn kept(weight: &Encoded) -> (String, f64) {
    let form = Form::of_tiles(weight, true).unwrap_or_else(|| Form::of(weight.codec()));
    (form.describe(), form.bits())
}

fn gcd(a: i32, b: i32) -> i32 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::{codec, exl3::EXL3, grouped::GROUPED};
    use nibble_tensor::Shape;

    #[test]
    fn codecs_get_the_planes_that_their_codes_need() {
        for (name, bits) in [
            ("q4_0", 4),
            ("q4_1", 4),
            ("q5_0", 5),
            ("q8_0", 8),
            ("q2_k", 2),
            ("q3_k", 3),
            ("q4_k", 4),
            ("q5_k", 5),
            ("q6_k", 6),
            ("iq4_nl", 4),
            ("mxfp4", 4),
            ("nvfp4", 4),
            ("tq1_0", 2),
            ("tq2_0", 2),
            ("q1_0", 1),
            ("q2_0", 2),
            ("pq2_0", 2),
            ("ptq1_0", 2),
            ("stq1_0", 2),
            ("i2_s", 2),
            ("i8", 8),
        ] {
            let Form::Planes { bits: found, .. } = Form::of(codec(name)) else { panic!("{name}") };
            assert_eq!(found, bits, "{name}");
        }
        assert_eq!(Form::of(codec("f16")), Form::F16);
        assert_eq!(Form::of(codec("bf16")), Form::Bf16);
        assert_eq!(Form::of(codec("f32")), Form::F32);
    }

    /// Those of grids and tiny blocks, whose codes are told apart one by one, and of scales for 16 numbers that are numbers of few
    /// bits in the file.
    #[test]
    fn all_other_codecs_take_at_most_one_bit_more_than_in_the_file() {
        let file = |spec: &nibble_quant::Spec| spec.block_bytes as f64 * 8.0 / spec.block_len as f64;
        let all = nibble_quant::CODECS.iter().map(|codec| (codec.spec(), Form::of(*codec).bits()));
        let inflated = all.filter(|(spec, bits)| *bits > file(spec) + 1.0);
        let expected = [
            ("q2_k", 4.0),
            ("iq1_s", 4.5),
            ("iq1_m", 5.0),
            ("iq2_xxs", 4.5),
            ("iq2_xs", 5.0),
            ("iq2_s", 5.0),
            ("iq3_xxs", 4.5),
            ("iq3_s", 4.5),
            ("stq1_0", 2.5),
        ];
        assert_eq!(inflated.map(|(spec, bits)| (spec.name, bits)).collect::<Vec<_>>(), expected);
    }

    /// What MLX, GPTQ, AWQ, compressed-tensors and EXL2 become.
    #[test]
    fn integers_in_groups_take_their_own_bits_and_one_for_their_scales() {
        for codec in GROUPED {
            let form = Form::of(codec);
            let Form::Planes { bits, .. } = form else { panic!("{}: {form:?}", codec.spec().name) };
            assert_eq!(bits as usize, codec.bits, "{}", codec.spec().name);
            let words: usize = form.words(256).iter().sum();
            assert!(words * 32 <= 256 * 16 * (codec.bits + 1), "{}: {form:?}", codec.spec().name);
        }
    }

    #[test]
    fn tiles_keep_the_bits_of_the_file() {
        for codec in EXL3 {
            let bytes = vec![0u8; 2 * 4 * codec.spec().block_bytes];
            let weight = |dims: [usize; 2]| {
                let count = dims[0] * dims[1] / 256 * codec.spec().block_bytes;
                Encoded::new("w", Shape::from(dims), codec, bytes[..count].to_vec().into()).unwrap()
            };
            let form = Form::of_tiles(&weight([32, 64]), true).expect("tiles");
            let bits: usize = form.words(4 * 32).iter().sum::<usize>() * 32;
            assert_eq!(bits, 32 * 64 * codec.bits, "{}", form.describe());
            // Not rows of which kernels could read past the end.
            assert_eq!(Form::of_tiles(&weight([16, 48]), true), None);
        }
        assert_eq!(Form::of(codec("exl3_4_mcg")), Form::F16);
    }

    #[test]
    fn planes_add_up_to_the_bits() {
        for bits in 1..=8 {
            let codes = Codes::Even { min: 0, step: 1 };
            let form = Form::Planes { bits, codes, group: 32, offsets: false };
            assert_eq!(form.planes().iter().map(|p| p.0).sum::<u32>(), bits);
        }
    }

    #[test]
    fn two_codes_take_one_bit_whatever_they_are() {
        let form = Form::for_codes(&[-1, 1], 32, false);
        let codes = Codes::Even { min: -1, step: 2 };
        assert_eq!(form, Form::Planes { bits: 1, codes, group: 32, offsets: false });
        assert_eq!(form.zero(), -0.5);
    }
}
