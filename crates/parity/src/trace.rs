//! What every layer makes of a few texts, small enough to be kept in a file.
//!
//! One wrong weight moves one column of one product by about a ten-thousandth, and the logits by less than rounding
//! does. So columns are compared, and of each only two numbers are kept: the sum of its values with random signs and the
//! sum of their squares. A wrong weight moves the former as much as it moves the column.

use serde::{Deserialize, Serialize};

/// A column-wise summary of one value inside the model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sketch {
    /// The weight, layer or place that it is the result of; see [`nibble_api::Tap`].
    pub name: String,
    /// The layer it belongs to.
    pub layer: Option<usize>,
    /// Signed sums, by column.
    #[serde(skip)]
    pub sums: Vec<f64>,
    /// Sums of squares, by column.
    #[serde(skip)]
    pub squares: Vec<f64>,
}

impl Sketch {
    /// One of nothing yet.
    pub fn new(name: String, layer: Option<usize>) -> Self {
        Self { name, layer, sums: vec![], squares: vec![] }
    }

    /// Takes in the row of a position of text `text`.
    pub fn add(&mut self, text: usize, position: usize, row: &[f32]) {
        self.sums.resize(row.len(), 0.0);
        self.squares.resize(row.len(), 0.0);
        let sign = sign(text, position);
        for ((sum, squares), &x) in self.sums.iter_mut().zip(&mut self.squares).zip(row) {
            let x = f64::from(x);
            *sum += sign * x;
            *squares += x * x;
        }
    }

    /// How far a column of `other` lies from ours at most, relative to the size of its values, and which one. Columns
    /// smaller than usual count as of usual size: what is left after large parts cancelled is less exact.
    pub fn deviation(&self, other: &Self) -> (f64, usize) {
        if self.sums.len() != other.sums.len() {
            return (f64::INFINITY, 0);
        }
        let usual = self.squares.iter().sum::<f64>() / self.squares.len().max(1) as f64;
        let off = |i: usize| {
            let size = self.squares[i].max(usual).max(f64::MIN_POSITIVE);
            let off = (self.sums[i] - other.sums[i]).abs() / size.sqrt();
            if off.is_nan() { f64::INFINITY } else { off }
        };
        (0..self.sums.len()).map(|i| (off(i), i)).fold((0.0, 0), |a, b| if b.0 > a.0 { b } else { a })
    }
}

/// 1 or -1, by chance that is the same everywhere.
fn sign(text: usize, position: usize) -> f64 {
    let mixed = ((text as u64) << 32 | position as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    if (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 63 == 0 { 1.0 } else { -1.0 }
}

/// Every layer of a model over some texts.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// In the order of the computation.
    pub sketches: Vec<Sketch>,
}

/// Where two traces part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parting {
    /// The value: see [`Sketch::name`].
    pub name: String,
    /// Its layer.
    pub layer: Option<usize>,
    /// The column that is off most.
    pub column: usize,
    /// By how much, relative to the size of its values.
    pub deviation: f64,
}

/// How two traces compare.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceReport {
    /// Values compared.
    pub values: usize,
    /// The one that is off most.
    pub most: Option<Parting>,
    /// The first one, in the order of the computation, that is off by more than the bound.
    pub first: Option<Parting>,
}

impl Trace {
    /// Compares `self` (right) with `other`; `None` if they are traces of models of another form.
    pub fn compare(&self, other: &Self, bound: f64) -> Option<TraceReport> {
        let names = |trace: &Self| trace.sketches.iter().map(|s| s.name.clone()).collect::<Vec<_>>();
        if names(self) != names(other) {
            return None;
        }
        let mut report = TraceReport { values: self.sketches.len(), most: None, first: None };
        for (right, found) in self.sketches.iter().zip(&other.sketches) {
            let (deviation, column) = right.deviation(found);
            let parting = Parting { name: right.name.clone(), layer: right.layer, column, deviation };
            if report.first.is_none() && deviation > bound {
                report.first = Some(parting.clone());
            }
            if report.most.as_ref().is_none_or(|most| most.deviation < deviation) {
                report.most = Some(parting);
            }
        }
        Some(report)
    }
}

/// The texts of `tokens` that are traced: every fourth one, its first 64 tokens.
pub fn texts<'a>(tokens: impl Iterator<Item = &'a [u32]>) -> Vec<Vec<u32>> {
    tokens.step_by(4).map(|text| text[..text.len().min(64)].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(rows: &[[f32; 3]]) -> Sketch {
        let mut sketch = Sketch::new("x".into(), Some(1));
        rows.iter().enumerate().for_each(|(i, row)| sketch.add(0, i, row));
        sketch
    }

    #[test]
    fn a_column_that_is_off_is_found() {
        let rows = [[1.0, 2.0, -1.0], [0.5, -2.0, 3.0], [2.0, 1.0, 1.0]];
        let right = sketch(&rows);
        assert_eq!(right.deviation(&right), (0.0, 0));
        let wrong = sketch(&rows.map(|[a, b, c]| [a, b * 1.001, c]));
        let (off, column) = right.deviation(&wrong);
        assert!(column == 1 && off > 1e-4 && off < 2e-3, "{off} in {column}");
        assert_eq!(right.deviation(&sketch(&[[f32::NAN, 0.0, 0.0]])), (f64::INFINITY, 0));
    }

    #[test]
    fn the_first_value_beyond_the_bound_is_named_and_other_models_are_not_compared() {
        let rows = [[1.0, 2.0, -1.0], [0.5, -2.0, 3.0]];
        let [right, wrong] = [rows, rows.map(|r| r.map(|x| x * 1.01))].map(|rows| sketch(&rows));
        let named = |s: &Sketch, name: &str| Sketch { name: name.into(), ..s.clone() };
        let a = Trace { sketches: ["a", "b", "c"].map(|n| named(&right, n)).to_vec() };
        let b = Trace { sketches: vec![named(&right, "a"), named(&wrong, "b"), named(&wrong, "c")] };
        let report = a.compare(&b, 1e-5).unwrap();
        assert_eq!(report.first.unwrap().name, "b");
        assert_eq!(a.compare(&a, 0.0).unwrap().first, None);
        assert_eq!(a.compare(&Trace::default(), 1.0), None);
    }

    #[test]
    fn signs_are_of_both_kinds() {
        let plus = (0..1000).filter(|&i| sign(3, i) > 0.0).count();
        assert!((400..600).contains(&plus), "{plus}");
    }
}
