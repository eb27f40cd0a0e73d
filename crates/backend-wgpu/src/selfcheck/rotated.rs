//! Products of rotated rows, and rows rotated back.

use super::{
    Case, Expected, Job, Twin,
    numbers::{Matrix, Seeded, linked, operand_len},
};
use crate::{
    form::Form,
    kernels::{
        program::{BLOCK, Step},
        rotated,
    },
    shader::Shader,
};

/// [`crate::kernels::rotated::product`].
#[derive(Clone, Debug)]
pub struct Rotated {
    form: Form,
    program: Vec<Step>,
    keep: bool,
    norm: Option<f32>,
    /// Results of each matrix.
    widths: Vec<usize>,
    run: usize,
    k: usize,
    per_group: usize,
    /// Rows of a workgroup.
    tile: usize,
}

impl Rotated {
    /// For that kernel: a row of two runs, unless a norm needs all of it, the second one shorter if it may be.
    pub fn new(g: &rotated::Rotated<'_>) -> Self {
        let per_group = g.sizes.per_group;
        Self {
            form: g.form.clone(),
            program: g.program.to_vec(),
            keep: g.keep,
            norm: g.norm,
            widths: (0..g.matrices).map(|m| (per_group + 16 * (m + 1)).next_multiple_of(16)).collect(),
            run: g.run,
            k: match (g.norm, g.even) {
                (Some(_), _) => g.run,
                (None, true) => 2 * g.run,
                (None, false) => g.run + BLOCK,
            },
            per_group,
            tile: g.sizes.tile,
        }
    }
}

impl Twin for Rotated {
    fn case(&self, shader: &Shader) -> Case {
        let r = &mut Seeded::new(13);
        let mut case = Case::default();
        // One more than a workgroup takes.
        let rows = self.tile + 1;
        let (k, halves, runs) = (self.k, self.k / 16, self.k.div_ceil(self.run));
        let mut words = vec![rows as u32, k as u32, halves as u32];
        let mut buffers = vec![];
        let row = made(&self.program, [rows, k], &mut case, (&mut buffers, &mut words), r);
        if self.keep {
            let buffer = case.add_output(rows * k);
            buffers.push(buffer);
            case.expected.push(Expected::Floats { buffer, numbers: row.clone(), tolerance: 1e-4 });
        }
        let mut scales = vec![1.0; rows];
        let mut x = row;
        if let Some(eps) = self.norm {
            for (scale, row) in scales.iter_mut().zip(x.chunks_exact(k)) {
                let squares: f64 = row.iter().map(|x| x * x).sum();
                *scale = 1.0 / (squares / k as f64 + f64::from(eps)).sqrt();
            }
            let by = r.numbers(k);
            buffers.push(case.add_floats(&by));
            x.iter_mut().enumerate().for_each(|(i, x)| *x *= by[i % k]);
        }
        let all: usize = self.widths.iter().sum();
        let mut results = vec![0.0; runs * rows * all];
        let mut skip = 0;
        for &width in &self.widths {
            let by = r.numbers(k);
            let matrix = Matrix::new(&self.form, width, halves, r);
            buffers.push(case.add_floats(&by));
            buffers.extend(matrix.planes.iter().map(|plane| case.add(plane.clone())));
            words.extend([width as u32, matrix.factor.to_bits()]);
            let mut input: Vec<f64> = x.iter().enumerate().map(|(i, x)| x * by[i % k]).collect();
            rotate(&mut input);
            for (i, run) in (0..runs).flat_map(|run| (0..rows).map(move |t| (t, run))) {
                let columns = run * self.run..k.min((run + 1) * self.run);
                let numbers = &input[i * k..][columns.clone()];
                for n in 0..width {
                    let weights = &matrix.numbers[n * k..][columns.clone()];
                    let dot: f64 = numbers.iter().zip(weights).map(|(x, w)| x * w).sum();
                    results[(run * rows + i) * all + skip + n] = dot * scales[i];
                }
            }
            skip += width;
        }
        let buffer = case.add_output(results.len());
        buffers.push(buffer);
        case.expected.push(Expected::Floats { buffer, numbers: results, tolerance: 1e-3 });
        let groups: usize = self.widths.iter().map(|n| n.div_ceil(self.per_group)).sum();
        case.jobs.push(Job {
            shader: shader.clone(),
            buffers,
            words,
            grid: [groups, rows.div_ceil(self.tile), runs],
        });
        case
    }
}

/// [`crate::kernels::rotated::rows`].
#[derive(Clone, Debug)]
pub struct RotatedBack {
    /// What makes each.
    pub programs: Vec<Vec<Step>>,
}

impl Twin for RotatedBack {
    fn case(&self, shader: &Shader) -> Case {
        let rows = 2;
        let r = &mut Seeded::new(17);
        let mut case = Case::default();
        let (mut buffers, mut words, mut blocks) = (vec![], vec![rows as u32], 0);
        for (i, program) in self.programs.iter().enumerate() {
            let k = (1 + i % 3) * BLOCK;
            blocks += k / BLOCK;
            words.push(k as u32);
            let numbers = made(program, [rows, k], &mut case, (&mut buffers, &mut words), r);
            let buffer = case.add_output(numbers.len());
            buffers.push(buffer);
            case.expected.push(Expected::Floats { buffer, numbers, tolerance: 1e-4 });
        }
        case.jobs.push(Job { shader: shader.clone(), buffers, words, grid: [blocks, rows, 1] });
        case
    }
}

/// What a program makes of seeded numbers, so many rows of `k`; adds its buffers and the words of its loads.
fn made(
    program: &[Step],
    [rows, k]: [usize; 2],
    case: &mut Case,
    (buffers, words): (&mut Vec<usize>, &mut Vec<u32>),
    r: &mut Seeded,
) -> Vec<f64> {
    let mut stack: Vec<Vec<f64>> = vec![];
    let top = "a row below";
    for step in program {
        match step {
            Step::Load(runs) => {
                let (stride, skip) = (k + 2 * BLOCK, BLOCK);
                let numbers = r.numbers(runs * rows * stride);
                buffers.push(case.add_floats(&numbers));
                words.extend([stride as u32, skip as u32]);
                let sum = |t: usize, n: usize| {
                    (0..*runs).map(|run| numbers[(run * rows + t) * stride + skip + n]).sum()
                };
                stack.push((0..rows * k).map(|i| sum(i / k, i % k)).collect());
            }
            Step::Rotate => rotate(stack.last_mut().expect(top)),
            Step::Link(link) => {
                let operand = r.numbers(operand_len(link, rows, k).unwrap_or(0));
                if !operand.is_empty() {
                    buffers.push(case.add_floats(&operand));
                }
                let row = stack.last_mut().expect(top);
                row.iter_mut()
                    .enumerate()
                    .for_each(|(i, v)| *v = linked(link, *v, &operand, (i / k, i % k, k)));
            }
            Step::Join(link) => {
                let mut row = stack.pop().expect(top);
                let below = stack.last_mut().expect(top);
                row.iter_mut().enumerate().for_each(|(i, v)| *v = linked(link, *v, below, (i / k, i % k, k)));
                *below = row;
            }
        }
    }
    stack.pop().expect("a program leaves a row")
}

/// The Walsh-Hadamard transform of every block.
fn rotate(numbers: &mut [f64]) {
    for block in numbers.chunks_exact_mut(BLOCK) {
        let mut half = 1;
        while half < BLOCK {
            for pair in block.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                a.iter_mut().zip(b).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
            }
            half *= 2;
        }
        block.iter_mut().for_each(|x| *x /= (BLOCK as f64).sqrt());
    }
}
