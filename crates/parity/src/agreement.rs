//! How well the logits of two sides agree.

use crate::side::Form;
use nibble_api::{Error, Kind, log_sum_exp};
use serde::Serialize;

/// A position of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The prompt's number.
    pub prompt: usize,
    /// The position in it.
    pub position: usize,
}

/// What was found over all positions so far.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Agreement {
    /// Positions compared.
    pub positions: usize,
    /// The smallest cosine of two rows.
    pub cosine_min: f64,
    /// Where.
    pub cosine_at: Place,
    cosine_sum: f64,
    /// The largest difference of two logits.
    pub max_diff: f64,
    /// Where.
    pub max_diff_at: Place,
    kl_sum: f64,
    same_top: usize,
    /// Where the likeliest tokens differ: by how much the reference's leads the subject's choice there, at most.
    pub overturned: f64,
}

/// What two rows say.
pub struct RowAgreement {
    cosine: f64,
    max_diff: f64,
    /// The divergence from the reference's probabilities to the subject's, in nats.
    pub kl: f64,
    /// The likeliest token of the subject and of the reference.
    pub top: [u32; 2],
    /// The lead of each one's likeliest token over its second.
    pub lead: [f64; 2],
    overturned: f64,
}

impl Agreement {
    /// Takes in the rows of one position.
    pub fn add(&mut self, place: Place, row: &RowAgreement) {
        if self.positions == 0 || row.cosine < self.cosine_min {
            (self.cosine_min, self.cosine_at) = (row.cosine, place);
        }
        if row.max_diff > self.max_diff {
            (self.max_diff, self.max_diff_at) = (row.max_diff, place);
        }
        self.positions += 1;
        self.cosine_sum += row.cosine;
        self.kl_sum += row.kl;
        self.same_top += usize::from(row.top[0] == row.top[1]);
        self.overturned = self.overturned.max(row.overturned);
    }

    /// The mean cosine.
    pub fn cosine_mean(&self) -> f64 {
        self.cosine_sum / self.positions.max(1) as f64
    }

    /// The mean Kullback-Leibler divergence from the reference's probabilities to the subject's, in nats.
    pub fn kl(&self) -> f64 {
        // Rounding can leave a sum of nothing a little below zero.
        (self.kl_sum / self.positions.max(1) as f64).max(0.0)
    }

    /// The share of positions at which both have the same likeliest token.
    pub fn top1(&self) -> f64 {
        self.same_top as f64 / self.positions.max(1) as f64
    }

    /// The positions at which they have.
    pub fn same_top(&self) -> usize {
        self.same_top
    }
}

/// How far above the floor of a row a stored log-probability may lie that was below it.
const FLOOR_WIDTH: f64 = 1e-3;

/// Compares a row of logits with the reference's, which is of `form`.
///
/// # Errors
/// [`Kind::Run`] if a number is not finite or the rows have different lengths.
pub fn compare(subject: &[f32], reference: &[f32], form: Form) -> Result<RowAgreement, Error> {
    if subject.len() != reference.len() {
        let (expected, found) = (reference.len(), subject.len());
        let what = format!("logits: expected rows of {expected} numbers as the reference has, found {found}");
        return Err(Error::new(Kind::Run, what));
    }
    for (who, row) in [("the model", subject), ("the reference", reference)] {
        if let Some(token) = row.iter().position(|x| !x.is_finite()) {
            let what =
                format!("logits of {who}: token {token}: expected a finite number, found {}", row[token]);
            return Err(Error::new(Kind::Run, what));
        }
    }
    let ([top_s, next_s], [top_r, next_r]) = (top_two(subject), top_two(reference));
    let at = |row: &[f32], token: u32| f64::from(row[token as usize]);
    let sum_s = log_sum_exp(subject);
    let (sum_r, floor) = match form {
        Form::Logits => (log_sum_exp(reference), f64::NEG_INFINITY),
        Form::LogProbs { depth } => (0.0, at(reference, top_r) - f64::from(depth)),
    };
    // Raised to the floor, or so unlikely that its rounding would count for more than it does.
    let counts = floor.max(if form == Form::Logits { -60.0 } else { -16.0 }) + FLOOR_WIDTH;
    // Logits are compared as they are; where there are only probabilities, the other side's logits are made ones.
    let shift = if form == Form::Logits { 0.0 } else { sum_s };
    let shown = |x: f32| (f64::from(x) - shift).max(floor);
    let (mut dot, mut squares_s, mut squares_r, mut max_diff, mut kl) = (0.0, 0.0, 0.0, 0.0f64, 0.0);
    for (&s, &r) in subject.iter().zip(reference) {
        let (a, b) = (shown(s), f64::from(r));
        dot += a * b;
        squares_s += a * a;
        squares_r += b * b;
        max_diff = max_diff.max((a - b).abs());
        let (log_s, log_r) = (f64::from(s) - sum_s, f64::from(r) - sum_r);
        if log_r > counts {
            kl += log_r.exp() * (log_r - log_s);
        }
    }
    let size = (squares_s * squares_r).sqrt();
    Ok(RowAgreement {
        cosine: if size == 0.0 { f64::from(squares_s == squares_r) } else { dot / size },
        max_diff,
        kl,
        top: [top_s, top_r],
        lead: [at(subject, top_s) - at(subject, next_s), at(reference, top_r) - at(reference, next_r)],
        overturned: at(reference, top_r) - at(reference, top_s),
    })
}

/// The tokens of the two largest numbers, the lower one first among equals.
fn top_two(row: &[f32]) -> [u32; 2] {
    let (mut first, mut second) = (0, usize::from(row.len() > 1));
    if row[second] > row[first] {
        (first, second) = (second, first);
    }
    for (i, &x) in row.iter().enumerate().skip(2) {
        if x > row[first] {
            (first, second) = (i, first);
        } else if x > row[second] {
            second = i;
        }
    }
    [first as u32, second as u32]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_compare_by_angle_distance_divergence_and_choice() {
        let (a, b) = ([1.0, 3.0, 2.0], [1.0, 2.0, 3.0]);
        let same = compare(&a, &a, Form::Logits).unwrap();
        assert_eq!((same.max_diff, same.top, same.lead), (0.0, [1, 1], [1.0, 1.0]));
        assert!((same.cosine - 1.0).abs() < 1e-12 && same.kl.abs() < 1e-12);
        let other = compare(&a, &b, Form::Logits).unwrap();
        assert_eq!((other.max_diff, other.top, other.overturned), (1.0, [1, 2], 1.0));
        assert!((other.cosine - 13.0 / 14.0).abs() < 1e-12, "{}", other.cosine);
        // (e^3 - e^2) / (e + e^2 + e^3), by hand
        assert!((other.kl - 0.420_512).abs() < 1e-6, "{}", other.kl);
        let mut all = Agreement::default();
        all.add(Place::default(), &same);
        all.add(Place { prompt: 1, position: 4 }, &other);
        assert_eq!((all.positions, all.top1(), all.max_diff_at.position), (2, 0.5, 4));
        assert!((all.kl() - other.kl / 2.0).abs() < 1e-12);
    }

    #[test]
    fn log_probabilities_compare_up_to_their_depth() {
        let logits = [5.0f32, 1.0, -30.0];
        let total = log_sum_exp(&logits) as f32;
        let floor = 5.0 - total - 16.0;
        let stored = logits.map(|x| (x - total).max(floor));
        let found = compare(&logits, &stored, Form::LogProbs { depth: 16.0 }).unwrap();
        assert!(found.max_diff < 1e-6 && found.kl.abs() < 1e-6, "{} {}", found.max_diff, found.kl);
    }

    #[test]
    fn numbers_that_are_not_finite_are_refused() {
        for bad in [f32::NAN, f32::INFINITY] {
            let error = compare(&[0.0, bad], &[0.0, 1.0], Form::Logits).err().unwrap().to_string();
            assert!(error.contains("token 1"), "{error}");
        }
        assert!(compare(&[0.0], &[0.0, 1.0], Form::Logits).is_err());
    }

    #[test]
    fn the_two_largest_are_found_wherever_they_are() {
        for (row, expected) in [
            (&[1.0, 2.0, 3.0][..], [2, 1]),
            (&[3.0, 2.0, 3.0], [0, 2]),
            (&[2.0, 2.0], [0, 1]),
            (&[1.0], [0, 0]),
        ] {
            assert_eq!(top_two(row), expected, "{row:?}");
        }
    }
}
