//! Products: of few rows and of many, with all that is fused to them.

use super::{
    Arrange, Case, Expected, Job, Twin, UNTOUCHED,
    numbers::{Matrix, Seeded, activation, best, codes, linked, operand_len},
};
use crate::{
    form::Form,
    kernels::{
        chain::Link,
        ends::Round,
        gemv::{Choice, Gemv, Input},
    },
    shader::Shader,
};
use nibble_graph::{Activation, Route};

/// What a product's input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Floats,
    Ragged,
    Codes,
    Halves,
}

/// Experts in a stack.
const EXPERTS: usize = 3;

/// A product of a matrix with rows.
#[derive(Clone, Debug)]
pub struct Product {
    /// Whether experts' rows come in tiles.
    many: bool,
    form: Form,
    input: Kind,
    /// Rows and results of a workgroup.
    tile: [usize; 2],
    /// Halves of a row: as many as its lanes take evenly, or some more.
    halves: usize,
    gate: Option<Activation>,
    products: Vec<Vec<Link>>,
    choice: Choice,
    norm: Option<f32>,
    choose: Option<(Route, bool)>,
    round: Option<Round>,
}

impl Product {
    /// Of few rows, by a kernel for `lanes` lanes in a subgroup.
    pub fn few(g: &Gemv<'_>, lanes: usize) -> Self {
        let input = match g.input {
            Input::Floats => Kind::Floats,
            Input::Ragged => Kind::Ragged,
            Input::Codes => Kind::Codes,
        };
        let even = lanes * g.ahead;
        Self {
            many: false,
            form: g.form.clone(),
            input,
            tile: [if g.choice == Choice::All { g.tile } else { 1 }, g.per_group],
            halves: if g.even { even.next_multiple_of(2) } else { even / 2 * 2 + 2 },
            gate: g.gate,
            products: g.products.to_vec(),
            choice: g.choice,
            norm: g.norm,
            choose: g.choose,
            round: g.round,
        }
    }

    /// Of many rows: in half precision by matrices, or in registers.
    pub fn many(form: &Form, products: &[Vec<Link>], choice: Choice, tile: [usize; 2], half: bool) -> Self {
        Self {
            many: true,
            form: form.clone(),
            input: if half { Kind::Halves } else { Kind::Ragged },
            tile,
            halves: 6,
            gate: None,
            products: products.to_vec(),
            choice,
            norm: None,
            choose: None,
            round: None,
        }
    }

    /// Adds the input; returns its numbers, row by row, and the length of a row as the kernel is told.
    fn input(
        &self,
        case: &mut Case,
        buffers: &mut Vec<usize>,
        rows: usize,
        r: &mut Seeded,
    ) -> (Vec<f64>, usize) {
        let len = self.halves * 16;
        match self.input {
            Kind::Floats | Kind::Ragged => {
                let k = if self.input == Kind::Ragged { len - 9 } else { len };
                let x = r.numbers(rows * k);
                buffers.push(case.add_floats(&x));
                let padded = x.chunks_exact(k).flat_map(|row| {
                    row.iter().copied().chain(std::iter::repeat_n(0.0, len - k)).collect::<Vec<_>>()
                });
                (padded.collect(), k)
            }
            Kind::Codes => {
                let (words, scales, numbers) = codes(rows * self.halves, r);
                buffers.extend([case.add(words), case.add(scales)]);
                (numbers, len)
            }
            Kind::Halves => {
                let x = r.numbers(rows * len);
                let scales: Vec<f64> = (0..rows).map(|_| r.size()).collect();
                let fours: Vec<f64> = x.chunks_exact(4).flat_map(|v| [v[0], v[2], v[1], v[3]]).collect();
                buffers.extend([case.add(super::numbers::halves_of(&fours)), case.add_floats(&scales)]);
                (x.iter().enumerate().map(|(i, x)| x * scales[i / len]).collect(), len)
            }
        }
    }
}

/// Columns of a product among those of all, and its operands.
struct End {
    columns: std::ops::Range<usize>,
    operands: Vec<Vec<f64>>,
}

impl Twin for Product {
    fn case(&self, shader: &Shader) -> Case {
        let r = &mut Seeded::new(3);
        let mut case = Case::default();
        let mut buffers = vec![];
        let rows = self.tile[0] + 1;
        let (used, own, sum) = match self.choice {
            Choice::All => (1, false, false),
            Choice::Experts { used, own } => (used, own, false),
            Choice::Sum { used, .. } => (used, true, true),
        };
        let entries = rows * used;
        let (in_rows, out_rows) = (if own { entries } else { rows }, if sum { rows } else { entries });
        let (mut x, k) = self.input(&mut case, &mut buffers, in_rows, r);
        let len = self.halves * 16;
        let squares: Vec<f64> = (0..in_rows * self.halves).map(|_| r.size()).collect();
        if self.norm.is_some() {
            buffers.push(case.add_floats(&squares));
            if self.input == Kind::Floats {
                let by = r.numbers(len);
                x.iter_mut().enumerate().for_each(|(i, x)| *x *= by[i % len]);
                buffers.push(case.add_floats(&by));
            }
        }
        // Results of a row, of one expert: more than a workgroup makes, and enough for the first products, of at most six.
        // Results that are rounded come in blocks of 32.
        let each = match self.round {
            Some(_) => self.tile[1] + 32,
            None => (self.tile[1] + 3).max(6 * self.products.len()),
        };
        let each = each.next_multiple_of(self.form.together());
        let experts = match (self.choice, &self.choose) {
            (Choice::All, _) => 1,
            (_, None) => EXPERTS,
            // Some are not chosen.
            _ => used + 2,
        };
        // Some results belong to another part of the matrix, before this one.
        let skipped: usize = if self.choice == Choice::All && self.round.is_none() { 5 } else { 0 };
        let skipped = skipped.next_multiple_of(self.form.together());
        let n = each * experts;
        let matrices: Vec<_> = (0..1 + usize::from(self.gate.is_some()))
            .map(|_| Matrix::new(&self.form, n, self.halves, r))
            .collect();
        for matrix in &matrices {
            buffers.extend(matrix.planes.iter().map(|words| case.add(words.clone())));
        }
        let mut chosen = vec![];
        let mut route = vec![];
        if let Some((how, bias)) = &self.choose {
            let logits: Vec<f64> = r.numbers(rows * experts).iter().map(|x| 3.0 * x).collect();
            let biases = if *bias { r.numbers(experts) } else { vec![0.0; experts] };
            buffers.push(case.add_floats(&logits));
            buffers.extend(bias.then(|| case.add_floats(&biases)));
            for logits in logits.chunks_exact(experts) {
                let (ids, weights) = best(how, logits, &biases);
                route.extend(weights);
                route.extend(ids.iter().map(|&e| e as f64));
                chosen.extend(ids);
            }
        } else {
            chosen.extend((0..entries).map(|t| (t * 2 + 1) % experts));
            for row in chosen.chunks_exact(used) {
                route.extend(row.iter().map(|_| r.size()));
                route.extend(row.iter().map(|&e| e as f64));
            }
        }
        let mut words = vec![rows as u32, n as u32, skipped as u32, self.halves as u32, k as u32];
        words.extend(matrices.iter().map(|m| m.factor.to_bits()));
        let arrange = Arrange { used, experts, height: self.tile[0] };
        let [tiles, order] = arrange.places(&chosen);
        let down = tiles.len() - 1;
        if self.choice != Choice::All {
            words.push(each as u32);
            if self.many {
                buffers.extend([case.add(tiles), case.add(order)]);
            } else if self.choose.is_some() {
                let buffer = case.add_output(route.len());
                buffers.push(buffer);
                words.push(experts as u32);
                let numbers = route.clone();
                case.expected.push(Expected::Floats { buffer, numbers, tolerance: 1e-4 });
            } else {
                buffers.push(case.add_floats(&route));
            }
        }
        let biases = match self.choice {
            Choice::Sum { bias: true, .. } => r.numbers(experts * each),
            _ => vec![],
        };
        if !biases.is_empty() {
            buffers.push(case.add_floats(&biases));
        }
        // The first products are one result wide.
        let width = skipped + each;
        let mut ends: Vec<End> = vec![];
        let mut outputs = vec![];
        for (i, links) in self.products.iter().enumerate() {
            let start = ends.last().map_or(0, |end| end.columns.end);
            let end = if i + 1 == self.products.len() { width } else { start + skipped + 1 };
            let own = end - start;
            let output = case.add_output(out_rows * own);
            outputs.push(output);
            buffers.push(output);
            words.push(own as u32);
            let lengths = links.iter().map(|link| operand_len(link, out_rows, own));
            let operands: Vec<Vec<f64>> = lengths.map(|len| r.numbers(len.unwrap_or(0))).collect();
            buffers.extend(operands.iter().filter(|o| !o.is_empty()).map(|o| case.add_floats(o)));
            ends.push(End { columns: start..end, operands });
        }

        // Of an entry; entries of experts that are summed are each their own.
        let result = |t: usize, n: usize| {
            let row = if own { t } else { t / used };
            let first = (chosen[t] * each + n) * len;
            let dot = |matrix: &Matrix| -> f64 {
                let w = &matrix.numbers[first..first + len];
                x[row * len..(row + 1) * len].iter().zip(w).map(|(x, w)| x * w).sum()
            };
            let norm = self.norm.map_or(1.0, |eps| {
                let squares: f64 = squares[row * self.halves..(row + 1) * self.halves].iter().sum();
                1.0 / (squares / k as f64 + f64::from(eps)).sqrt()
            });
            let one = dot(&matrices[0]) * norm + biases.get(chosen[t] * each + n).unwrap_or(&0.0);
            self.gate.map_or(one, |f| activation(f, one) * dot(&matrices[1]) * norm)
        };
        let result = |t: usize, n: usize| match sum {
            true => (0..used).map(|i| route[2 * t * used + i] * result(t * used + i, n)).sum(),
            false => result(t, n),
        };
        let tolerance = if self.input == Kind::Halves { 1e-2 } else { 1e-3 };
        let mut all = vec![];
        for (links, (end, &buffer)) in self.products.iter().zip(ends.iter().zip(&outputs)) {
            let width = end.columns.len();
            let mut numbers = vec![];
            for t in 0..out_rows {
                for (n, column) in end.columns.clone().enumerate() {
                    if column < skipped {
                        numbers.push(f64::from(UNTOUCHED));
                        continue;
                    }
                    let v = result(t, column - skipped);
                    let ended = links.iter().zip(&end.operands);
                    numbers.push(ended.fold(v, |v, (link, o)| linked(link, v, o, (t, n, width))));
                }
            }
            all = numbers.clone();
            case.expected.push(Expected::Floats { buffer, numbers, tolerance });
        }
        if let Some(round) = self.round {
            let [codes, scales] = [all.len() / 4, all.len() / 8].map(|len| case.add_output(len));
            buffers.extend([codes, scales]);
            if round == Round::ForNorm {
                let by = r.numbers(each);
                let squares = case.add_output(all.len() / 16);
                buffers.extend([case.add_floats(&by), squares]);
                let sums = all.chunks(16).map(|half| half.iter().map(|x| x * x).sum()).collect();
                case.expected.push(Expected::Floats { buffer: squares, numbers: sums, tolerance: 2e-3 });
                all.iter_mut().enumerate().for_each(|(i, x)| *x *= by[i % each]);
            }
            case.expected.push(Expected::Codes { codes, scales, numbers: all, tolerance });
        }
        let down = match self.choice {
            Choice::All => rows.div_ceil(self.tile[0]),
            // One workgroup more than there are tiles.
            _ if self.many => down + 1,
            _ => out_rows,
        };
        let grid = [each.div_ceil(self.tile[1]), down, 1];
        case.jobs.push(Job { shader: shader.clone(), buffers, words, grid });
        case
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shader::Source;

    /// As many products as models stack, whatever a workgroup makes: wide subgroups leave few of them in one.
    #[test]
    fn a_case_has_results_for_every_product() {
        for (products, per_group) in (1..=5).flat_map(|products| [1, 2, 4, 16].map(|n| (products, n))) {
            let product = Product {
                many: false,
                form: Form::F32,
                input: Kind::Ragged,
                tile: [1, per_group],
                halves: 2,
                gate: None,
                products: vec![vec![]; products],
                choice: Choice::All,
                norm: None,
                choose: None,
                round: None,
            };
            let case = product.case(&Source::new("no kernel", 1).build(""));
            let results = case.expected.iter().map(|expected| match expected {
                Expected::Floats { numbers, .. } => {
                    numbers.iter().filter(|&&x| x != f64::from(UNTOUCHED)).count()
                }
                _ => 0,
            });
            assert!(results.clone().all(|count| count > 0), "{products} products, {per_group} a workgroup");
            assert!(results.sum::<usize>() >= 2 * per_group, "{products} products, {per_group} a workgroup");
        }
    }
}
