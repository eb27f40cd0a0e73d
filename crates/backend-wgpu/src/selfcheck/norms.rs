//! Norms, rounding, and what else brings rows into the forms that products read.

use super::{
    Case, Expected, Job, Twin,
    numbers::{Matrix, Seeded},
};
use crate::{form::Form, pack::halves, shader::Shader};

/// A length that neither blocks nor workgroups divide.
const LEN: usize = 300;

const ROWS: usize = 3;

/// Rows of very different sizes: one is so quiet that a wrong epsilon is heard.
fn rows(len: usize) -> Vec<f64> {
    let mut x = Seeded::new(5).numbers(ROWS * len);
    x[..len].iter_mut().for_each(|x| *x *= 1e-3);
    x[2 * len..].iter_mut().for_each(|x| *x *= 100.0);
    x
}

fn case(shader: &Shader, mut case: Case, buffers: Vec<usize>, words: Vec<u32>, x: usize) -> Case {
    let words = [ROWS as u32].into_iter().chain(words).collect();
    case.jobs.push(Job { shader: shader.clone(), buffers, words, grid: [x, ROWS, 1] });
    case
}

/// `x / sqrt(f(sum of squares) + eps)`, group by group.
fn scaled(x: &[f64], len: usize, by: impl Fn(f64) -> f64) -> Vec<f64> {
    let groups = x.chunks(len).flat_map(|group| {
        let scale = 1.0 / by(group.iter().map(|x| x * x).sum()).sqrt();
        group.iter().map(move |x| x * scale).collect::<Vec<_>>()
    });
    groups.collect()
}

/// An epsilon that the quiet row feels.
const EPS: f32 = 1e-6;

/// [`crate::kernels::norm::rms_norm`], two groups a row.
#[derive(Debug)]
pub struct RmsNorm;

impl Twin for RmsNorm {
    fn case(&self, shader: &Shader) -> Case {
        let mut c = Case::default();
        let len = LEN / 2;
        let (x, weight) = (rows(LEN), Seeded::new(6).numbers(len));
        let y = scaled(&x, len, |sum| sum / len as f64 + f64::from(EPS));
        let y: Vec<f64> = y.iter().enumerate().map(|(i, y)| y * weight[i % len]).collect();
        let buffers = vec![c.add_floats(&x), c.add_floats(&weight), c.add_output(y.len())];
        c.expected.push(Expected::Floats { buffer: 2, numbers: y, tolerance: 1e-4 });
        case(shader, c, buffers, vec![len as u32, 2, EPS.to_bits()], 2)
    }
}

/// [`crate::kernels::norm::l2_norm`], two groups a row.
#[derive(Debug)]
pub struct L2Norm;

impl Twin for L2Norm {
    fn case(&self, shader: &Shader) -> Case {
        let mut c = Case::default();
        let (x, len) = (rows(LEN), LEN / 2);
        let y = scaled(&x, len, |sum| sum + f64::from(EPS));
        let buffers = vec![c.add_floats(&x), c.add_output(y.len())];
        c.expected.push(Expected::Floats { buffer: 1, numbers: y, tolerance: 1e-4 });
        case(shader, c, buffers, vec![len as u32, 2, EPS.to_bits()], 2)
    }
}

/// Rows filled up to whole blocks.
fn padded(x: &[f64], len: usize) -> Vec<f64> {
    let whole = halves(len) * 16;
    x.chunks(len).flat_map(|row| (0..whole).map(|i| row.get(i).copied().unwrap_or(0.0))).collect()
}

/// [`crate::kernels::norm::rms_norm_codes`].
#[derive(Debug)]
pub struct RmsNormCodes {
    /// Whether the result is kept too.
    pub keep: bool,
}

impl Twin for RmsNormCodes {
    fn case(&self, shader: &Shader) -> Case {
        let mut c = Case::default();
        let (x, weight) = (rows(LEN), Seeded::new(6).numbers(LEN));
        let y = scaled(&x, LEN, |sum| sum / LEN as f64 + f64::from(EPS));
        let y: Vec<f64> = y.iter().enumerate().map(|(i, y)| y * weight[i % LEN]).collect();
        let all = padded(&y, LEN);
        let mut buffers = vec![c.add_floats(&x), c.add_floats(&weight)];
        buffers.extend([c.add_output(all.len() / 4), c.add_output(all.len() / 8)]);
        if self.keep {
            buffers.push(c.add_output(y.len()));
            c.expected.push(Expected::Floats { buffer: 4, numbers: y, tolerance: 1e-4 });
        }
        c.expected.push(Expected::Codes { codes: 2, scales: 3, numbers: all, tolerance: 1e-4 });
        case(shader, c, buffers, vec![halves(LEN) as u32, LEN as u32, EPS.to_bits()], 1)
    }
}

/// [`crate::kernels::quantize::quantize`].
#[derive(Debug)]
pub struct Quantize;

impl Twin for Quantize {
    fn case(&self, shader: &Shader) -> Case {
        let mut c = Case::default();
        // More halves than a workgroup takes.
        let len = 64 * 16 + LEN;
        let x = rows(len);
        let all = padded(&x, len);
        let buffers = vec![c.add_floats(&x), c.add_output(all.len() / 4), c.add_output(all.len() / 8)];
        c.expected.push(Expected::Codes { codes: 1, scales: 2, numbers: all, tolerance: 1e-7 });
        case(shader, c, buffers, vec![halves(len) as u32, len as u32], halves(len).div_ceil(64))
    }
}

/// [`crate::kernels::gemm::to_half`].
#[derive(Debug)]
pub struct ToHalf;

impl Twin for ToHalf {
    fn case(&self, shader: &Shader) -> Case {
        let mut c = Case::default();
        let x = rows(LEN);
        let all = padded(&x, LEN);
        let row_len = halves(LEN) * 16;
        let buffers = vec![c.add_floats(&x), c.add_output(all.len() / 2), c.add_output(ROWS)];
        c.expected = vec![Expected::Halves { buffer: 1, scales: 2, row_len, numbers: all, tolerance: 1e-3 }];
        case(shader, c, buffers, vec![halves(LEN) as u32, LEN as u32], 1)
    }
}

/// [`crate::kernels::embed::embed`].
#[derive(Debug)]
pub struct Embed {
    /// How the table lies.
    pub form: Form,
}

impl Twin for Embed {
    fn case(&self, shader: &Shader) -> Case {
        let mut c = Case::default();
        let [count, first] = [5, 3usize].map(|n| n.next_multiple_of(self.form.together()));
        let (len, whole) = (LEN, halves(LEN) * 16);
        let table = Matrix::new(&self.form, count, halves(LEN), &mut Seeded::new(7));
        // The last row's token is in another part of the table.
        let tokens = [first + 4, first, 1];
        let step = tokens.iter().flat_map(|&t| [t as u32, 9, 0, 0]).collect();
        let mut buffers = vec![c.add(step)];
        buffers.extend(table.planes.iter().map(|words| c.add(words.clone())));
        let y = c.add_output(ROWS * len);
        buffers.push(y);
        let number = |row: usize, k: usize| match tokens[row].checked_sub(first) {
            Some(at) => table.numbers[at * whole + k],
            None => f64::from(super::UNTOUCHED),
        };
        let numbers = (0..ROWS * len).map(|e| number(e / len, e % len)).collect();
        c.expected.push(Expected::Floats { buffer: y, numbers, tolerance: 1e-5 });
        let words = [count, first, halves(len), len].map(|n| n as u32).into_iter();
        let words = words.chain([table.factor.to_bits()]).collect();
        case(shader, c, buffers, words, halves(len).div_ceil(64))
    }
}
