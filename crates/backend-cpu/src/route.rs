//! `route`: router logits into experts and their weights.

use nibble_graph::{Route, Scoring};

/// Fills `y` (`used` weights, then `used` ids) for one row. `spare` has room for two numbers for each expert.
pub fn route(op: &Route, logits: &[f32], bias: Option<&[f32]>, spare: &mut [f32], y: &mut [f32]) {
    let (scores, choice) = spare[..2 * logits.len()].split_at_mut(logits.len());
    score(op.scoring, logits, scores);
    choice.copy_from_slice(scores);
    if let Some(bias) = bias {
        choice.iter_mut().zip(bias).for_each(|(c, b)| *c += b);
    }
    let (weights, ids) = y.split_at_mut(op.used);
    for (weight, id) in weights.iter_mut().zip(ids) {
        let best = best(choice);
        (*weight, *id) = (scores[best], best as f32);
        choice[best] = f32::NAN;
    }
    if op.normalize {
        let sum: f32 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= sum);
    }
    weights.iter_mut().for_each(|w| *w *= op.scale);
}

fn score(scoring: Scoring, logits: &[f32], scores: &mut [f32]) {
    match scoring {
        Scoring::Sigmoid => {
            scores.iter_mut().zip(logits).for_each(|(s, x)| *s = 1.0 / (1.0 + (-x).exp()));
        }
        Scoring::Softmax => {
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores.iter_mut().zip(logits).for_each(|(s, x)| *s = (x - max).exp());
            let sum: f64 = scores.iter().map(|&s| f64::from(s)).sum();
            scores.iter_mut().for_each(|s| *s = (f64::from(*s) / sum) as f32);
        }
    }
}

/// The greatest number that is one; the first of equals. If there is none, the first place that is no expert yet
/// cannot be told: 0.
fn best(choice: &[f32]) -> usize {
    let better = |best: Option<usize>, i: usize| match best {
        Some(b) if choice[b] >= choice[i] => best,
        _ if choice[i].is_nan() => best,
        _ => Some(i),
    };
    (0..choice.len()).fold(None, better).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_bias_chooses_and_does_not_weigh() {
        let op = Route { used: 2, scoring: Scoring::Sigmoid, normalize: true, scale: 1.0 };
        let (mut y, mut spare) = ([0.0; 4], [0.0; 8]);
        route(&op, &[2.0, 1.0, 0.0, -1.0], Some(&[0.0, 0.0, 3.0, 0.0]), &mut spare, &mut y);
        assert_eq!(y[2..], [2.0, 0.0]);
        assert!((y[0] - 0.3621).abs() < 1e-4 && (y[1] - 0.6379).abs() < 1e-4, "{y:?}");
    }

    #[test]
    fn the_lower_id_wins_ties_and_nan_does_not_hang() {
        let op = Route { used: 3, scoring: Scoring::Softmax, normalize: false, scale: 2.0 };
        let (mut y, mut spare) = ([0.0; 6], [0.0; 10]);
        route(&op, &[1.0, 3.0, 1.0, 3.0, 1.0], None, &mut spare, &mut y);
        assert_eq!(y[3..], [1.0, 3.0, 0.0]);
        route(&op, &[f32::NAN; 5], None, &mut spare, &mut y);
        assert_eq!(y[3..], [0.0; 3]);
    }
}
