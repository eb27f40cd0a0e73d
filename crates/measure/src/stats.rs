//! Few repeats, honestly summed up: median, extremes, and a bootstrap interval of the median.

use serde::{Deserialize, Serialize};

/// Samples that are drawn for an interval.
const RESAMPLES: usize = 4000;

/// Several takes of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// How many takes.
    pub repeats: usize,
    /// The one in the middle; the mean of the two in the middle of an even number.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
    /// The 95 % bootstrap interval of the median; `None` for a single take, which says nothing of the next one.
    pub interval: Option<[f64; 2]>,
}

impl Summary {
    /// The summary of some takes; `None` if there are none or one is not finite.
    pub fn of(takes: &[f64]) -> Option<Self> {
        if takes.is_empty() || takes.iter().any(|x| !x.is_finite()) {
            return None;
        }
        let fold = |start, pick: fn(f64, f64) -> f64| takes.iter().copied().fold(start, pick);
        Some(Self {
            repeats: takes.len(),
            median: median(takes)?,
            min: fold(f64::INFINITY, f64::min),
            max: fold(f64::NEG_INFINITY, f64::max),
            interval: bootstrap_median(takes),
        })
    }

    /// Whether the intervals of two summaries share a point; extremes stand in where there is no interval.
    pub fn overlaps(&self, other: &Self) -> bool {
        let range = |s: &Self| s.interval.unwrap_or([s.min, s.max]);
        let (a, b) = (range(self), range(other));
        a[0] <= b[1] && b[0] <= a[1]
    }
}

/// The median; `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut values = values.to_vec();
    values.sort_by(f64::total_cmp);
    let half = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[half]),
        _ => Some((values[half - 1] + values[half]) / 2.0),
    }
}

/// The percentile bootstrap interval (95 %) of the median, from draws that are the same on every machine; `None` for
/// fewer than two values.
pub fn bootstrap_median(values: &[f64]) -> Option<[f64; 2]> {
    if values.len() < 2 {
        return None;
    }
    let mut draws = Draws::new(0x6E69_6262_6C65);
    let mut sample = vec![0.0; values.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        sample.fill_with(|| values[draws.below(values.len())]);
        medians.extend(median(&sample));
    }
    medians.sort_by(f64::total_cmp);
    let at = |share: f64| medians[(share * (RESAMPLES - 1) as f64).round() as usize];
    Some([at(0.025), at(0.975)])
}

/// Ratios pair by pair, for takes that were made in turns: take `i` of one side stands beside take `i` of the other, so
/// that what slowed both down at that moment cancels. `None` if the sides are not alike in number, or a ratio is not
/// finite.
pub fn ratios(ours: &[f64], theirs: &[f64]) -> Option<Summary> {
    if ours.len() != theirs.len() {
        return None;
    }
    Summary::of(&ours.iter().zip(theirs).map(|(a, b)| a / b).collect::<Vec<_>>())
}

/// SplitMix64.
pub(crate) struct Draws(u64);

impl Draws {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number in `0..n`.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_holds_the_middle_and_the_ends() {
        let summary = Summary::of(&[4.0, 1.0, 3.0, 2.0]).unwrap();
        assert_eq!((summary.repeats, summary.median, summary.min, summary.max), (4, 2.5, 1.0, 4.0));
        let [low, high] = summary.interval.unwrap();
        assert!((1.0..2.5).contains(&low) && (2.5..=4.0).contains(&high), "{low} {high}");
    }

    #[test]
    fn the_interval_narrows_with_more_takes_and_never_leaves_them() {
        let takes = |n: usize| (0..n).map(|i| ((i * 37) % n) as f64 / n as f64).collect::<Vec<_>>();
        let width = |n| bootstrap_median(&takes(n)).map(|[low, high]| high - low).unwrap();
        assert!(width(400) < width(40) && width(40) < width(8));
        assert_eq!(bootstrap_median(&[3.0; 5]), Some([3.0, 3.0]));
    }

    #[test]
    fn one_take_has_no_interval_and_a_broken_one_no_summary() {
        assert_eq!(Summary::of(&[2.0]).unwrap().interval, None);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn ratios_are_made_pair_by_pair() {
        // Both sides slow down together: apart they spread, their ratios do not.
        let summary = ratios(&[10.0, 20.0, 40.0], &[5.0, 10.0, 20.0]).unwrap();
        assert_eq!((summary.median, summary.interval), (2.0, Some([2.0, 2.0])));
        assert_eq!(ratios(&[1.0], &[1.0, 2.0]), None);
        assert_eq!(ratios(&[1.0], &[0.0]), None);
    }

    #[test]
    fn summaries_overlap_where_their_intervals_do() {
        let of = |takes: &[f64]| Summary::of(takes).unwrap();
        assert!(of(&[1.0, 2.0, 3.0]).overlaps(&of(&[2.5, 3.5, 4.5])));
        assert!(!of(&[1.0, 1.1, 1.2]).overlaps(&of(&[2.0, 2.1, 2.2])));
        assert!(of(&[2.0]).overlaps(&of(&[1.0, 3.0])));
    }
}
