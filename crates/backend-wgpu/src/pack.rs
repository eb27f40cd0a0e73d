//! Encoded rows into the planes of a [`Form`].

use crate::{
    form::{Codes, Form},
    trellis,
};
use half::{bf16, f16};
use nibble_graph::{Graph, WeightId};
use nibble_quant::{Encoded, Group, Kind, Unpacked, f8_scaled::Layout};
use std::{
    ops::Range,
    sync::atomic::{AtomicBool, Ordering},
};

/// A matrix, or rows of one, as the device takes it.
pub struct Packed {
    /// Plane by plane, as [`Form::words`] counts them.
    pub planes: Vec<Vec<u32>>,
    /// Scales and offsets are to be multiplied by this: they are kept in the middle of what half precision can hold.
    pub factor: f32,
}

/// Rows of one weight.
pub struct Piece<'a> {
    /// The weight.
    pub weight: &'a Encoded,
    /// Which of its rows.
    pub rows: Range<usize>,
}

impl<'a> Piece<'a> {
    /// All rows of a weight.
    #[cfg(test)]
    pub fn whole(weight: &'a Encoded) -> Self {
        Self { weight, rows: 0..weight.shape().rows() }
    }

    /// The pieces that rows `range` of stacked weights are made of.
    pub fn cut(graph: &'a Graph, weights: &[WeightId], range: &Range<usize>) -> Vec<Self> {
        let mut start = 0;
        let mut pieces = vec![];
        for &id in weights {
            let weight = &graph.weight(id).data;
            let end = start + weight.shape().rows();
            let rows = range.start.max(start)..range.end.min(end);
            if !rows.is_empty() {
                pieces.push(Self { weight, rows: rows.start - start..rows.end - start });
            }
            start = end;
        }
        pieces
    }
}

/// Halves of 16 numbers in a row: rows are filled up to whole blocks of 32.
pub fn halves(row_len: usize) -> usize {
    row_len.div_ceil(32) * 2
}

/// Packs rows of the same length, with as many threads as the machine has.
///
/// Returns nothing if they say something that `form` cannot hold.
pub fn pack(pieces: &[Piece<'_>], form: &Form) -> Option<Packed> {
    let row_len = pieces[0].weight.shape().row_len();
    let per_row = form.words(halves(row_len));
    // Scales are gathered as floats first: what they are to be multiplied by is known in the end.
    let floats = if let Form::Planes { group, .. } = form { halves(row_len) * 16 / group } else { 0 };
    let codes = form.planes().len();
    let code_words: Vec<usize> = if form.is_codes() { per_row[..codes].to_vec() } else { per_row.clone() };
    let count: usize = pieces.iter().map(|p| p.rows.len()).sum();
    let mut planes: Vec<Vec<u32>> = code_words.iter().map(|w| vec![0; w * count]).collect();
    let mut groups = vec![Group { scale: 0.0, offset: 0.0 }; floats * count];

    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    let together = form.together();
    let chunk = count.div_ceil(threads).max(1).next_multiple_of(together);
    let fits = AtomicBool::new(true);
    std::thread::scope(|scope| {
        let mut parts: Vec<Vec<&mut [u32]>> = (0..count.div_ceil(chunk)).map(|_| vec![]).collect();
        for (plane, words) in planes.iter_mut().zip(&code_words) {
            for (part, words) in parts.iter_mut().zip(plane.chunks_mut((words * chunk).max(1))) {
                part.push(words);
            }
        }
        let mut rest = &mut groups[..];
        for (i, mut planes) in parts.into_iter().enumerate() {
            let first = i * chunk;
            let len = chunk.min(count - first);
            let (groups, more) = rest.split_at_mut(floats * len);
            rest = more;
            let (fits, code_words) = (&fits, &code_words);
            scope.spawn(move || {
                let mut rows =
                    pieces.iter().flat_map(|p| p.rows.clone().map(|row| (p.weight, row))).skip(first);
                let mut packer = Packer::new(row_len, form);
                for row in (0..len).step_by(together) {
                    let (weight, from) = rows.next().expect("as many rows as were counted");
                    rows.by_ref().take(together - 1).for_each(drop);
                    let groups = &mut groups[row * floats..(row + 1) * floats];
                    let mut words =
                        planes.iter_mut().zip(code_words).map(|(p, w)| &mut p[row * w..(row + together) * w]);
                    if !packer.row((weight, from), &mut words, groups) {
                        fits.store(false, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
    if !fits.into_inner() {
        return None;
    }
    let Form::Planes { offsets, .. } = form else { return Some(Packed { planes, factor: 1.0 }) };
    let largest = groups.iter().fold(0f32, |max, g| max.max(g.scale.abs()).max(g.offset.abs()));
    let factor = centre(largest);
    planes.push(halves_of(groups.iter().map(|g| g.scale / factor)));
    if *offsets {
        planes.push(halves_of(groups.iter().map(|g| g.offset / factor)));
    }
    Some(Packed { planes, factor })
}

/// The power of two that brings numbers up to `largest` to the top of half precision, with a bit to spare.
fn centre(largest: f32) -> f32 {
    if largest == 0.0 || !largest.is_finite() {
        1.0
    } else {
        (largest.log2().floor().clamp(-110.0, 110.0) - 14.0).exp2()
    }
}

/// Two half-precision numbers a word, the first one low.
fn halves_of(numbers: impl Iterator<Item = f32>) -> Vec<u32> {
    let mut words = vec![];
    for (i, x) in numbers.enumerate() {
        let bits = u32::from(f16::from_f32(x).to_bits());
        if i % 2 == 0 { words.push(bits) } else { words[i / 2] |= bits << 16 }
    }
    words
}

/// Packs row after row, or tile after tile.
struct Packer<'a> {
    form: &'a Form,
    planes: Vec<(u32, u32)>,
    /// The code of each value, by value + 128.
    lookup: [Option<u8>; 256],
    numbers: Vec<f32>,
    codes: Vec<i8>,
}

impl<'a> Packer<'a> {
    fn new(row_len: usize, form: &'a Form) -> Self {
        let len = halves(row_len) * 16;
        let mut lookup = [None; 256];
        if let Form::Planes { bits, codes, .. } = form {
            for value in -128i32..128 {
                lookup[(value + 128) as usize] = match codes {
                    Codes::Signed => Some(value as i8 as u8),
                    Codes::Even { min, step } => {
                        let code = (value - min) / step;
                        let fits = value >= *min && (value - min) % step == 0 && code < 1 << bits;
                        fits.then_some(code as u8)
                    }
                    Codes::Table(table) => table.iter().position(|&t| i32::from(t) == value).map(|i| i as u8),
                };
            }
        }
        Self { form, planes: form.planes(), lookup, numbers: vec![0.0; len], codes: vec![0; len] }
    }

    fn row(
        &mut self,
        row: (&Encoded, usize),
        planes: &mut dyn Iterator<Item = &mut [u32]>,
        groups: &mut [Group],
    ) -> bool {
        match self.form {
            Form::Planes { .. } => self.codes(row, planes, groups),
            Form::Trellis { .. } => {
                trellis::pack(row.0, row.1, planes.next().expect("one plane"));
                true
            }
            Form::F8 { .. } => floats_of_bytes(row, planes),
            _ => self.floats(row, planes.next().expect("floats are one plane")),
        }
    }

    fn floats(&mut self, (weight, row): (&Encoded, usize), out: &mut [u32]) -> bool {
        let len = weight.shape().row_len();
        weight.decode_row(row, &mut self.numbers[..len]);
        let pairs = |bits: fn(f32) -> u16, back: fn(u16) -> f32, out: &mut [u32]| {
            for (word, pair) in out.iter_mut().zip(self.numbers.chunks_exact(2)) {
                *word = u32::from(bits(pair[0])) | u32::from(bits(pair[1])) << 16;
            }
            let same = |x: f32| back(bits(x)) == x || x.is_nan();
            self.numbers.iter().all(|&x| same(x))
        };
        match self.form {
            Form::F16 => pairs(|x| f16::from_f32(x).to_bits(), |b| f16::from_bits(b).to_f32(), out),
            Form::Bf16 => pairs(|x| bf16::from_f32(x).to_bits(), |b| bf16::from_bits(b).to_f32(), out),
            _ => {
                out.iter_mut().zip(&self.numbers).for_each(|(word, x)| *word = x.to_bits());
                true
            }
        }
    }

    fn codes(
        &mut self,
        row: (&Encoded, usize),
        planes: &mut dyn Iterator<Item = &mut [u32]>,
        groups: &mut [Group],
    ) -> bool {
        let Form::Planes { codes: meaning, group, offsets, .. } = self.form else { unreachable!("planes") };
        let (weight, row) = row;
        let codec = weight.codec();
        let spec = codec.spec();
        let own = if codec.kind() == Kind::Group16 { 16 } else { 32 };
        debug_assert_eq!(own, *group, "forms keep the groups of their codec");
        let bytes = weight.row(row);
        for (i, block) in bytes.chunks_exact(spec.block_bytes).enumerate() {
            let codes = &mut self.codes[i * spec.block_len..(i + 1) * spec.block_len];
            let per_block = spec.block_len / own;
            let groups = &mut groups[i * per_block..(i + 1) * per_block];
            codec.unpack(block, &mut Unpacked { codes, groups });
        }
        for group in groups.iter_mut() {
            if let Codes::Even { min, step } = meaning {
                if *offsets {
                    group.offset += group.scale * *min as f32;
                }
                group.scale *= *step as f32;
            }
            if !*offsets && group.offset != 0.0 {
                return false;
            }
        }
        let mut all = true;
        let len = weight.shape().row_len();
        for code in &mut self.codes[..len] {
            match self.lookup[(i16::from(*code) + 128) as usize] {
                Some(found) => *code = found as i8,
                None => all = false,
            }
        }
        for (&(width, shift), out) in self.planes.iter().zip(planes) {
            let mask = ((1u32 << width) - 1) as u8;
            for (i, &code) in self.codes.iter().enumerate() {
                let bits = u32::from((code as u8 >> shift) & mask);
                let (word, at) = place(width, i);
                out[word] |= bits << at;
            }
        }
        all
    }
}

/// Codes and scales of eight-bit floats; nothing that is no number.
fn floats_of_bytes((weight, row): (&Encoded, usize), planes: &mut dyn Iterator<Item = &mut [u32]>) -> bool {
    let layout = Layout::of(weight.codec()).expect("the form of eight-bit floats");
    let spec = weight.codec().spec();
    let codes = planes.next().expect("a plane of codes");
    let mut scales = planes.next();
    for (i, block) in weight.row(row).chunks_exact(spec.block_bytes).enumerate() {
        if let Some(scales) = &mut scales {
            scales[i] = layout.scale(block).to_bits();
        }
        for (j, &code) in block[layout.lead..].iter().enumerate() {
            let (word, at) = place(8, i * spec.block_len + j);
            codes[word] |= u32::from(code) << at;
            if !layout.is_number(code) {
                return false;
            }
        }
    }
    true
}

/// Where number `i` of a row stands in a plane: its word and its lowest bit.
fn place(width: u32, i: usize) -> (usize, u32) {
    let byte = (i % 4) as u32 * 8;
    match width {
        8 => (i / 4, byte),
        4 => (i / 8, byte + (i / 4 % 2) as u32 * 4),
        2 => (i / 16, byte + (i / 4 % 4) as u32 * 2),
        _ => (i / 32, byte + (i / 4 % 8) as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::CODECS;
    use nibble_tensor::Shape;
    use nibble_testkit::Rng;

    /// What a kernel would read: all numbers of a row.
    fn unpack(form: &Form, packed: &Packed, row: usize, len: usize) -> Vec<f32> {
        let halves = halves(len);
        let words = form.words(halves);
        if let Form::F8 { mantissa, group } = *form {
            let code = |i: usize| (packed.planes[0][row * words[0] + i / 4] >> (8 * (i % 4))) as u8;
            let scale = |i: usize| match group {
                Some(group) => f32::from_bits(packed.planes[1][row * words[1] + i / group]),
                None => 1.0,
            };
            let codec = nibble_quant::codec(if mantissa == 3 { "f8_e4m3" } else { "f8_e5m2" });
            let mut number = [0.0];
            return (0..len)
                .map(|i| {
                    codec.decode(&[code(i)], &mut number);
                    number[0] * scale(i)
                })
                .collect();
        }
        let Form::Planes { codes, group, offsets, .. } = form else {
            let plane = &packed.planes[0][row * words[0]..];
            let pair = |i: usize| (plane[i / 2] >> (i % 2 * 16)) as u16;
            return (0..len)
                .map(|i| match form {
                    Form::F16 => f16::from_bits(pair(i)).to_f32(),
                    Form::Bf16 => bf16::from_bits(pair(i)).to_f32(),
                    _ => f32::from_bits(plane[i]),
                })
                .collect();
        };
        let planes = form.planes();
        let half = |plane: usize, i: usize| {
            f16::from_bits((packed.planes[plane][i / 2] >> (i % 2 * 16)) as u16).to_f32() * packed.factor
        };
        (0..len)
            .map(|i| {
                let mut code = 0;
                for (p, &(width, shift)) in planes.iter().enumerate() {
                    let (word, at) = place(width, i);
                    let bits = packed.planes[p][row * words[p] + word] >> at & ((1u64 << width) - 1) as u32;
                    code |= bits << shift;
                }
                let group = row * halves * 16 / group + i / group;
                let value = match codes {
                    Codes::Signed => f32::from(code as u8 as i8),
                    Codes::Table(table) => f32::from(table[code as usize]),
                    Codes::Even { .. } => code as f32 + form.zero(),
                };
                let offset = if *offsets { half(planes.len() + 1, group) } else { 0.0 };
                value * half(planes.len(), group) + offset
            })
            .collect()
    }

    #[test]
    fn every_codec_survives_its_planes() {
        let mut rng = Rng::new(5);
        for codec in CODECS {
            let spec = codec.spec();
            let len = spec.block_len * 3;
            let form = Form::of(*codec);
            // Small scales: random bytes as half-precision numbers would be anything up to infinity.
            let row = |rng: &mut Rng| -> Vec<u8> {
                let numbers: Vec<f32> = (0..len).map(|_| rng.uniform()).collect();
                match codec.encoder() {
                    Some(encoder) => {
                        let mut bytes = vec![0; 3 * spec.block_bytes];
                        encoder.encode_row(&numbers, None, &mut bytes);
                        bytes
                    }
                    None => (0..3 * spec.block_bytes).map(|_| rng.below(60) as u8).collect(),
                }
            };
            let rows = [row(&mut rng), row(&mut rng)];
            let weight = Encoded::new("w", Shape::from([2, len]), *codec, rows.concat().into()).unwrap();
            let packed =
                pack(&[Piece::whole(&weight)], &form).unwrap_or_else(|| panic!("{}: {form:?}", spec.name));
            let expected = weight.decode();
            for row in 0..2 {
                let found = unpack(&form, &packed, row, len);
                let expected = &expected[row * len..(row + 1) * len];
                let largest = expected.iter().fold(0f32, |m, e| m.max(e.abs()));
                for (f, e) in found.iter().zip(expected) {
                    assert!(
                        (f - e).abs() <= 2e-3 * largest,
                        "{} ({}): {f}, not {e}",
                        spec.name,
                        form.describe()
                    );
                }
            }
        }
    }

    #[test]
    fn scales_of_any_size_keep_their_digits() {
        for exponent in [-40, -20, 0, 20] {
            let size = 2f32.powi(exponent);
            let bytes: Vec<u8> = (0..32i32).flat_map(|i| (i as f32 * size).to_le_bytes()).collect();
            let weight =
                Encoded::new("w", Shape::from([1, 32]), nibble_quant::codec("f32"), bytes.into()).unwrap();
            let numbers = weight.decode();
            let factor = centre(numbers[31]);
            assert!(numbers[1] / factor > 6.2e-5 && numbers[31] / factor < 65504.0, "{exponent}: {factor}");
        }
    }
}
