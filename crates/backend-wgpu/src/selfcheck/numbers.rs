//! Seeded numbers, and plain twins of what kernels share: planes, functions, links.

use crate::{
    form::{Codes, Form, half_words},
    kernels::chain::Link,
};
use half::{bf16, f16};
use nibble_graph::{Activation, Route, Scoring};
use nibble_quant::exl3::{self, Codebook};

/// The same numbers on every machine.
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn word(&mut self) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    /// In half precision, -1 to 1.
    pub fn number(&mut self) -> f64 {
        f16::from_f64(f64::from(self.word()) / f64::from(1u32 << 31) - 1.0).to_f64()
    }

    /// In half precision, 0.5 to 1.5.
    pub fn size(&mut self) -> f64 {
        f16::from_f64(1.0 + self.number() / 2.0).to_f64()
    }

    pub fn numbers(&mut self, count: usize) -> Vec<f64> {
        (0..count).map(|_| self.number()).collect()
    }
}

/// A matrix in planes with the numbers that they stand for.
pub struct Matrix {
    /// The planes, in the order of [`Form::words`].
    pub planes: Vec<Vec<u32>>,
    /// What scales are multiplied by.
    pub factor: f32,
    /// Row by row.
    pub numbers: Vec<f64>,
}

impl Matrix {
    /// So many rows of `row_halves` halves of 16 numbers.
    pub fn new(form: &Form, rows: usize, row_halves: usize, r: &mut Seeded) -> Self {
        let halves = rows * row_halves;
        let words = form.words(halves);
        if let Form::Trellis { bits, book, .. } = form {
            return Self::trellis((*bits as usize, *book), rows, row_halves, r);
        }
        if let &Form::F8 { mantissa, group } = form {
            // Below 2.
            let codes: Vec<u32> = (0..words[0]).map(|_| r.word() & 0xbfbf_bfbf).collect();
            let scales: Vec<f64> = words.get(1).map_or(vec![], |&n| (0..n).map(|_| r.size()).collect());
            let decode = |i: usize| {
                let code = codes[i / 4] >> (8 * (i % 4));
                let (e, m) = (code >> mantissa & (0x7f >> mantissa), f64::from(code & ((1 << mantissa) - 1)));
                let (one, bias) = (f64::from(1 << mantissa), (0x7f >> mantissa) / 2);
                let m = m / one + if e > 0 { 1.0 } else { 0.0 };
                let x = m * 2f64.powi(e.max(1) as i32 - bias);
                let x = if code & 0x80 == 0 { x } else { -x };
                x * group.map_or(1.0, |group| scales[i / group])
            };
            let numbers = (0..halves * 16).map(decode).collect();
            let scales = scales.iter().map(|&x| (x as f32).to_bits()).collect();
            let planes = [codes].into_iter().chain(group.map(|_| scales)).collect();
            return Self { planes, factor: 1.0, numbers };
        }
        let Form::Planes { bits, codes, group, offsets } = form else {
            let numbers = r.numbers(halves * 16);
            let pair = |to: fn(f64) -> u16| -> Vec<u32> {
                numbers.chunks_exact(2).map(|x| u32::from(to(x[0])) | u32::from(to(x[1])) << 16).collect()
            };
            return match form {
                Form::F32 => Self {
                    planes: vec![numbers.iter().map(|&x| (x as f32).to_bits()).collect()],
                    factor: 1.0,
                    numbers,
                },
                Form::F16 => {
                    Self { planes: vec![pair(|x| f16::from_f64(x).to_bits())], factor: 1.0, numbers }
                }
                _ => {
                    let planes = vec![pair(|x| bf16::from_f64(x).to_bits())];
                    let numbers = numbers.iter().map(|&x| bf16::from_f64(x).to_f64()).collect();
                    Self { planes, factor: 1.0, numbers }
                }
            };
        };
        let widths = form.planes();
        let mut planes: Vec<Vec<u32>> =
            words[..widths.len()].iter().map(|&n| (0..n).map(|_| r.word()).collect()).collect();
        let range = match codes {
            Codes::Table(table) => table.iter().fold(1.0, |m: f64, &e| m.max(f64::from(e).abs())),
            _ => f64::from(1u32 << bits) / 2.0,
        };
        let groups = (halves * 16).div_ceil(*group);
        let scales: Vec<f64> = (0..groups).map(|_| r.size()).collect();
        let shift = |x: f64| f16::from_f64(x * range).to_f64();
        let lows: Vec<f64> = (0..groups).map(|_| if *offsets { shift(r.number()) } else { 0.0 }).collect();
        let factor = (1.0 / range) as f32;
        let zero = f64::from(form.zero());
        let number = |at: usize| {
            let (h, i) = (at / 16, at % 16);
            let code = widths.iter().zip(&planes).fold(0, |code, (&(width, shift), plane)| {
                let first = h * half_words(width) / 2;
                let bits = match width {
                    8 => plane[first + i / 4] >> (8 * (i % 4)),
                    4 => plane[first + i / 8] >> (8 * (i % 4) + 4 * (i / 4 % 2)),
                    2 => plane[first] >> (8 * (i % 4) + 2 * (i / 4)),
                    _ => plane[first] >> (8 * (i % 4) + i / 4 + 4 * (h % 2)),
                };
                code | (bits & ((1 << width) - 1)) << shift
            });
            let code = match codes {
                Codes::Table(table) => f64::from(table.get(code as usize).copied().unwrap_or(0)),
                Codes::Signed => f64::from(code as u8 as i8),
                Codes::Even { .. } => f64::from(code),
            };
            (scales[at / group] * (code + zero) + lows[at / group]) * f64::from(factor)
        };
        let numbers = (0..halves * 16).map(number).collect();
        planes.push(halves_of(&scales));
        if *offsets {
            planes.push(halves_of(&lows));
        }
        Self { planes, factor, numbers }
    }

    /// Tiles of random bits, unit after unit along two rows each.
    fn trellis((bits, book): (usize, Codebook), rows: usize, pieces: usize, r: &mut Seeded) -> Self {
        let words: Vec<u32> = (0..rows * pieces * bits / 2).map(|_| r.word()).collect();
        // Bit `at` of the string of a tile.
        let bit = |tile: usize, piece: usize, at: usize| {
            let unit = (tile * 8 + at / (32 * bits)) * pieces + piece;
            words[unit * bits + at % (32 * bits) / 32] >> (31 - at % 32) & 1
        };
        let number = |row: usize, k: usize| {
            let j = (0..16).find(|&j| exl3::input(j) == k % 16).expect("a number for every input");
            let end = (exl3::element(row % 16, j) + 1) * bits + 256 * bits;
            let state =
                (0..16).fold(0, |state, i| state << 1 | bit(row / 16, k / 16, (end - 16 + i) % (256 * bits)));
            book.value(state as u16).to_f64()
        };
        let numbers = (0..rows).flat_map(|row| (0..pieces * 16).map(move |k| (row, k)));
        let numbers = numbers.map(|(row, k)| number(row, k)).collect();
        Self { planes: vec![words], factor: 1.0, numbers }
    }
}

/// Numbers in half precision, two in a word.
pub fn halves_of(numbers: &[f64]) -> Vec<u32> {
    let bits = |x: Option<&f64>| x.map_or(0, |&x| u32::from(f16::from_f64(x).to_bits()));
    numbers.chunks(2).map(|pair| bits(pair.first()) | bits(pair.get(1)) << 16).collect()
}

/// Rows as codes with scales, as `quantize` leaves them: words of codes, of scales, and the numbers.
pub fn codes(halves: usize, r: &mut Seeded) -> (Vec<u32>, Vec<u32>, Vec<f64>) {
    let (mut words, mut scales, mut numbers) = (vec![], vec![], vec![]);
    let mut d = 0.0;
    for h in 0..halves {
        if h % 2 == 0 {
            d = r.size() as f32 / 127.0;
        }
        let codes: Vec<i8> = (0..16).map(|_| (r.word() >> 8) as u8 as i8).map(|c| c.max(-127)).collect();
        words.extend(codes.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]].map(|c| c as u8))));
        let sum: f32 = codes.iter().map(|&c| f32::from(c)).sum();
        scales.extend([d.to_bits(), (d * sum).to_bits()]);
        numbers.extend(codes.iter().map(|&c| f64::from(d) * f64::from(c)));
    }
    (words, scales, numbers)
}

/// An activation.
pub fn activation(f: Activation, x: f64) -> f64 {
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    match f {
        Activation::Silu => x * sigmoid(x),
        Activation::GeluTanh => {
            0.5 * x * (1.0 + (0.797_884_560_802_865_4 * (x + 0.044_715 * x * x * x)).tanh())
        }
        Activation::Relu2 => x.max(0.0).powi(2),
        Activation::Sigmoid => sigmoid(x),
        Activation::Softplus => x.exp().ln_1p(),
        Activation::OssGate => x.min(7.0) * sigmoid(1.702 * x.min(7.0)),
        Activation::OssUp => 1.0 + x.clamp(-7.0, 7.0),
        Activation::Tanh => x.tanh(),
    }
}

/// The experts of a row by its logits, the best first, and their weights.
pub fn best(r: &Route, logits: &[f64], bias: &[f64]) -> (Vec<usize>, Vec<f64>) {
    let scores: Vec<f64> = match r.scoring {
        Scoring::Sigmoid => logits.iter().map(|x| 1.0 / (1.0 + (-x).exp())).collect(),
        Scoring::Softmax => {
            let total: f64 = logits.iter().map(|x| x.exp()).sum();
            logits.iter().map(|x| x.exp() / total).collect()
        }
    };
    let rank = |e: usize| scores[e] + bias[e];
    let mut ids: Vec<usize> = (0..logits.len()).collect();
    ids.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)).then(a.cmp(&b)));
    ids.truncate(r.used);
    let sum = if r.normalize { ids.iter().map(|&e| scores[e]).sum() } else { 1.0 };
    let weights = ids.iter().map(|&e| scores[e] / sum * f64::from(r.scale)).collect();
    (ids, weights)
}

/// The length of a link's operand for `rows` rows of `width` results; `None` if it has none.
pub fn operand_len(link: &Link, rows: usize, width: usize) -> Option<usize> {
    match link {
        Link::AddVector | Link::MulVector => Some(width),
        Link::MulScalar => Some(1),
        _ if link.has_operand() => Some(rows * width),
        _ => None,
    }
}

/// A link on the result at row `t`, column `n`.
pub fn linked(link: &Link, v: f64, operand: &[f64], (t, n, width): (usize, usize, usize)) -> f64 {
    let e = t * width + n;
    match link {
        Link::AddVector => v + operand[n],
        Link::MulVector => v * operand[n],
        Link::MulScalar => v * operand[0],
        Link::AddValue => v + operand[e],
        Link::MulValue => v * operand[e],
        Link::GateOf(f) => activation(*f, v) * operand[e],
        Link::GatedBy(f) => activation(*f, operand[e]) * v,
        Link::Scale(factor) => v * f64::from(*factor),
        Link::Activate(f) => activation(*f, v),
        Link::SoftCap(cap) => f64::from(*cap) * (v / f64::from(*cap)).tanh(),
    }
}
