//! Encoders of the tensor types that had none to ship: grids, `q8_1`, `stq1_0`. They are quick and rough, and stay as they
//! are: what they write is pinned.

use super::{half, largest};
use half::f16;
use nibble_quant::grids::{
    PACKED_IQ1, PACKED_IQ2_S, PACKED_IQ2_XS, PACKED_IQ2_XXS, PACKED_IQ3_S, PACKED_IQ3_XXS, Packed,
};
use std::cell::RefCell;

/// Writes one block of 256 numbers.
pub(super) type Block = Box<dyn Fn(&[f32], &mut [u8])>;

/// The encoder of a type, and how many numbers a block of it has.
pub(super) fn encoder(name: &str) -> Option<(usize, Block)> {
    let block: (usize, Block) = match name {
        "q8_1" => (32, Box::new(q8_1)),
        "stq1_0" => (256, Box::new(stq1_0)),
        "iq2_xxs" => (256, words(Grid::new(PACKED_IQ2_XXS, 256, 8), 0.25)),
        "iq3_xxs" => (256, words(Grid::new(PACKED_IQ3_XXS, 256, 4), 0.5)),
        "iq2_xs" => (256, iq2(Grid::new(PACKED_IQ2_XS, 512, 8), true)),
        "iq2_s" => (256, iq2(Grid::new(PACKED_IQ2_S, 1024, 8), false)),
        "iq3_s" => (256, iq3_s(Grid::new(PACKED_IQ3_S, 512, 4))),
        "iq1_s" => (256, iq1_s(Grid::new(PACKED_IQ1, 2048, 8))),
        "iq1_m" => (256, iq1_m(Grid::new(PACKED_IQ1, 2048, 8))),
        _ => return None,
    };
    Some(block)
}

fn put(block: &mut [u8], at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put_half(block: &mut [u8], at: usize, x: f32) {
    put(block, at, &f16::from_f32(x).to_le_bytes());
}

fn q8_1(x: &[f32], block: &mut [u8]) {
    let d = largest(x) / 127.0;
    let code = |x: &f32| if d > 0.0 { (x / d).round() as i8 } else { 0 };
    let codes: Vec<i8> = x.iter().map(code).collect();
    let sum: i32 = codes.iter().map(|&c| i32::from(c)).sum();
    put_half(block, 0, d);
    put_half(block, 2, d * sum as f32);
    block[4..].iter_mut().zip(codes).for_each(|(out, code)| *out = code as u8);
}

fn stq1_0(x: &[f32], block: &mut [u8]) {
    block.fill(0);
    for g in 0..64 {
        let four = [0, 1, 2, 3].map(|p| x[64 * (g / 16) + g % 16 + 16 * p]);
        let zero = (0..4).reduce(|a, b| if four[b].abs() < four[a].abs() { b } else { a }).unwrap_or(0);
        let others: Vec<f32> = (0..4).filter(|&p| p != zero).map(|p| four[p]).collect();
        let [first, second, third] = [0, 1, 2].map(|i| others[i] < 0.0);
        let code = zero as u8 * 4 + u8::from(second != first) + 2 * u8::from(third != first);
        block[g / 2] |= code << (4 * (g % 2));
        block[32 + g / 8] |= u8::from(first) << (g % 8);
    }
    put_half(block, 40, x.iter().map(|x| x.abs()).sum::<f32>() / 192.0);
}

/// Points of a grid, found by their levels.
struct Grid {
    packed: Packed,
    points: usize,
    /// Numbers of a point.
    len: usize,
    /// What was found, by the levels of the numbers.
    found: RefCell<Vec<Option<u16>>>,
}

impl Grid {
    fn new(packed: Packed, points: usize, len: usize) -> Self {
        Self { packed, points, len, found: RefCell::new(vec![None; 1 << 16]) }
    }

    fn most(&self) -> f32 {
        f32::from(*self.packed.levels.last().expect("levels"))
    }

    /// The levels of a point.
    fn levels(&self, point: usize) -> impl Iterator<Item = i32> {
        let (bits, packed) = (16 / self.len, self.packed);
        let level = move |k: usize| packed.point(point) >> (bits * k) & ((1 << bits) - 1);
        (0..self.len).map(move |k| i32::from(packed.levels[usize::from(level(k))]))
    }

    /// The point nearest to what the levels nearest to the numbers are.
    fn nearest(&self, numbers: impl Iterator<Item = f32>) -> u16 {
        let (bits, levels) = (16 / self.len, self.packed.levels);
        let level = |x: f32| {
            let distance = |l: usize| (x - f32::from(levels[l])).abs();
            (1..levels.len()).fold(0, |best, l| if distance(l) < distance(best) { l } else { best })
        };
        let key = numbers.enumerate().fold(0, |key, (k, x)| key | level(x) << (bits * k));
        *self.found.borrow_mut()[key].get_or_insert_with(|| {
            let level = |k: usize| i32::from(levels[key >> (bits * k) & ((1 << bits) - 1)]);
            let distance = |&point: &usize| {
                self.levels(point).enumerate().map(|(k, l)| (l - level(k)) * (l - level(k))).sum::<i32>()
            };
            (0..self.points).min_by_key(distance).unwrap_or(0) as u16
        })
    }

    /// The point of magnitudes under a scale.
    fn magnitudes(&self, x: &[f32], scale: f32) -> u16 {
        self.nearest(x.iter().map(|x| x.abs() / scale.max(f32::MIN_POSITIVE)))
    }
}

/// The number of the scale under which the largest of `x` is the grid's highest level: `step * (offset + n)`, n to `most`.
fn scale_code(x: &[f32], step: f32, offset: f32, most: f32) -> u8 {
    if step > 0.0 { (largest(x) / step - offset).round().clamp(0.0, most) as u8 } else { 0 }
}

/// Minus signs as bits; with `even`, of the smallest number's sign one is made that makes them even.
fn sign_bits(x: &[f32], even: bool) -> u8 {
    let bits = x.iter().enumerate().fold(0u8, |bits, (k, x)| bits | u8::from(*x < 0.0) << k);
    if !even || bits.count_ones() % 2 == 0 {
        return bits;
    }
    let smallest = (0..8).reduce(|a, b| if x[b].abs() < x[a].abs() { b } else { a }).unwrap_or(0);
    bits ^ 1 << smallest
}

/// `iq2_xxs` and `iq3_xxs`: a word with signs and a scale of four bits for 32 numbers.
fn words(grid: Grid, quarter: f32) -> Block {
    Box::new(move |x, block| {
        let d = half(largest(x) / (15.5 * quarter * grid.most()));
        put_half(block, 0, d);
        for (b, x) in x.chunks_exact(32).enumerate() {
            let code = scale_code(x, d * quarter * grid.most(), 0.5, 15.0);
            let scale = d * (0.5 + f32::from(code)) * quarter;
            let indices: Vec<u8> =
                x.chunks_exact(grid.len).map(|x| grid.magnitudes(x, scale) as u8).collect();
            let signs = x.chunks_exact(8).enumerate();
            let signs = signs.fold(0, |w, (l, x)| w | u32::from(sign_bits(x, true) & 127) << (7 * l));
            let word = (signs | u32::from(code) << 28).to_le_bytes();
            let [at, word_at] = match grid.len {
                8 => [2 + 8 * b, 6 + 8 * b],
                _ => [2 + 8 * b, 66 + 4 * b],
            };
            put(block, at, &indices);
            put(block, word_at, &word);
        }
    })
}

/// `iq2_xs` (`even` signs) and `iq2_s`: a scale of four bits for 16 numbers.
fn iq2(grid: Grid, even: bool) -> Block {
    Box::new(move |x, block| {
        block.fill(0);
        let d = half(largest(x) / (15.5 * 0.25 * grid.most()));
        put_half(block, 0, d);
        let scales_at = if even { 66 } else { 74 };
        for (t, x) in x.chunks_exact(16).enumerate() {
            let code = scale_code(x, d * 0.25 * grid.most(), 0.5, 15.0);
            block[scales_at + t / 2] |= code << (4 * (t % 2));
            for (g, x) in x.chunks_exact(8).enumerate() {
                let g = 2 * t + g;
                let index = grid.magnitudes(x, d * (0.5 + f32::from(code)) * 0.25);
                let signs = sign_bits(x, even);
                match even {
                    true => put(block, 2 + 2 * g, &(index | u16::from(signs & 127) << 9).to_le_bytes()),
                    false => {
                        (block[2 + g], block[34 + g]) = (index as u8, signs);
                        block[66 + g / 4] |= ((index >> 8) as u8) << (2 * (g % 4));
                    }
                }
            }
        }
    })
}

fn iq3_s(grid: Grid) -> Block {
    Box::new(move |x, block| {
        block.fill(0);
        let d = half(largest(x) / (31.0 * grid.most()));
        put_half(block, 0, d);
        for (b, x) in x.chunks_exact(32).enumerate() {
            let code = scale_code(x, 2.0 * d * grid.most(), 0.5, 15.0);
            block[106 + b / 2] |= code << (4 * (b % 2));
            for (k, x) in x.chunks_exact(4).enumerate() {
                let index = grid.magnitudes(x, d * f32::from(1 + 2 * code));
                block[2 + 8 * b + k] = index as u8;
                block[66 + b] |= ((index >> 8) as u8) << k;
            }
            x.chunks_exact(8).enumerate().for_each(|(l, x)| block[74 + 4 * b + l] = sign_bits(x, false));
        }
    })
}

/// Whether eight numbers lie rather below zero, and their point once the shift of an eighth is taken off.
fn shifted(grid: &Grid, x: &[f32], scale: f32) -> (bool, u16) {
    let below = x.iter().sum::<f32>() < 0.0;
    let shift = if below { -0.125 } else { 0.125 };
    (below, grid.nearest(x.iter().map(|x| x / scale.max(f32::MIN_POSITIVE) - shift)))
}

fn iq1_s(grid: Grid) -> Block {
    Box::new(move |x, block| {
        block.fill(0);
        let d = half(largest(x) / 15.0);
        put_half(block, 0, d);
        for (b, x) in x.chunks_exact(32).enumerate() {
            let code = scale_code(x, 2.0 * d, 0.5, 7.0);
            // One shift for all four groups.
            let below = x.iter().sum::<f32>() < 0.0;
            let mut high = u16::from(code) << 12 | u16::from(below) << 15;
            let (scale, shift) = (d * f32::from(2 * code + 1), if below { -0.125 } else { 0.125 });
            for (l, x) in x.chunks_exact(8).enumerate() {
                let index = grid.nearest(x.iter().map(|x| x / scale.max(f32::MIN_POSITIVE) - shift));
                block[2 + 4 * b + l] = index as u8;
                high |= (index >> 8) << (3 * l);
            }
            put(block, 34 + 2 * b, &high.to_le_bytes());
        }
    })
}

fn iq1_m(grid: Grid) -> Block {
    Box::new(move |x, block| {
        block.fill(0);
        let d = f16::from_f32(largest(x) / 15.0);
        let mut scales: [u16; 4] = std::array::from_fn(|i| (d.to_bits() >> (4 * i) & 15) << 12);
        for (t, x) in x.chunks_exact(16).enumerate() {
            let code = scale_code(x, 2.0 * d.to_f32(), 0.5, 7.0);
            scales[t / 4] |= u16::from(code) << (3 * (t % 4));
            for (g, x) in x.chunks_exact(8).enumerate() {
                let g = 2 * t + g;
                let (below, index) = shifted(&grid, x, d.to_f32() * f32::from(2 * code + 1));
                block[g] = index as u8;
                block[32 + g / 2] |= ((index >> 8) as u8 | u8::from(below) << 3) << (4 * (g % 2));
            }
        }
        put(block, 48, &scales.map(u16::to_le_bytes).concat());
    })
}
