//! Choice of experts.

use nibble_graph::{Route, Scoring};

/// For each row of router `logits` (`[T, E]`) the weights of the chosen experts, best first, then their ids; `y` is
/// `[T, 2 * used]`. `bias` (`[E]`) counts for the choice alone; the lower id wins ties.
pub fn route(logits: &[f32], experts: usize, bias: Option<&[f32]>, r: &Route, y: &mut [f32]) {
    for (logits, y) in logits.chunks_exact(experts).zip(y.chunks_exact_mut(2 * r.used)) {
        let scores = scores(logits, r.scoring);
        let rank = |e: usize| scores[e] + bias.map_or(0.0, |bias| f64::from(bias[e]));
        let mut order: Vec<usize> = (0..experts).collect();
        order.sort_by(|&a, &b| rank(b).total_cmp(&rank(a)).then(a.cmp(&b)));
        let chosen = &order[..r.used];
        let total = if r.normalize { chosen.iter().map(|&e| scores[e]).sum() } else { 1.0 };
        for (slot, &expert) in chosen.iter().enumerate() {
            y[slot] = (scores[expert] / total * f64::from(r.scale)) as f32;
            y[r.used + slot] = expert as f32;
        }
    }
}

/// What each expert's logit counts for, before any bias.
pub fn scores(logits: &[f32], scoring: Scoring) -> Vec<f64> {
    match scoring {
        Scoring::Sigmoid => logits.iter().map(|&x| 1.0 / (1.0 + (-f64::from(x)).exp())).collect(),
        Scoring::Softmax => {
            let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let exps: Vec<f64> = logits.iter().map(|&x| (f64::from(x) - f64::from(max)).exp()).collect();
            let total: f64 = exps.iter().sum();
            exps.into_iter().map(|e| e / total).collect()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selection_bias_changes_the_choice_and_not_the_weights() {
        let r = Route { used: 2, scoring: Scoring::Sigmoid, normalize: true, scale: 1.0 };
        let mut y = [0.0; 4];
        route(&[2.0, 1.0, 0.0, -1.0], 4, Some(&[0.0, 0.0, 3.0, 0.0]), &r, &mut y);
        assert_eq!(y[2..], [2.0, 0.0]);
        assert!((y[0] - 0.3621).abs() < 5e-5 && (y[1] - 0.6379).abs() < 5e-5, "{y:?}");
    }

    #[test]
    fn softmax_weights_are_shares_of_all_experts_unless_normalized() {
        let mut r = Route { used: 1, scoring: Scoring::Softmax, normalize: false, scale: 2.0 };
        let mut y = [0.0; 2];
        route(&[0.0, 3f32.ln()], 2, None, &r, &mut y);
        assert!((y[0] - 1.5).abs() < 1e-6 && y[1] == 1.0, "{y:?}");
        r.normalize = true;
        route(&[0.0, 3f32.ln()], 2, None, &r, &mut y);
        assert_eq!(y, [2.0, 1.0]);
    }

    #[test]
    fn the_lower_id_wins_ties() {
        let r = Route { used: 2, scoring: Scoring::Softmax, normalize: true, scale: 1.0 };
        let mut y = [0.0; 4];
        route(&[1.0; 5], 5, None, &r, &mut y);
        assert_eq!(y, [0.5, 0.5, 0.0, 1.0]);
    }
}
