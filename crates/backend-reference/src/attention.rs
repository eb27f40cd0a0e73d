//! Causal attention of one query row over keys and values.

use crate::dot;
use nibble_graph::{Attention, KvLayer};

/// Heads and their sizes, and how scores are made.
#[derive(Clone, Debug)]
pub struct Heads {
    /// Heads, scale, window and cap.
    pub attention: Attention,
    /// Heads and sizes of keys and values.
    pub kv: KvLayer,
}

/// Attention of the row `q` (`[heads * key_dim]`), which is the last of `keys` (`[P, kv_heads * key_dim]`) and
/// `values` (`[P, kv_heads * value_dim]`), oldest first. `sinks` (`[heads]`) are scores of one more position, whose value
/// is nothing. `y` is `[heads * value_dim]`.
pub fn attention(q: &[f32], keys: &[f32], values: &[f32], sinks: Option<&[f32]>, h: &Heads, y: &mut [f32]) {
    let KvLayer { kv_heads, key_dim, value_dim } = h.kv;
    let a = &h.attention;
    let positions = keys.len() / (kv_heads * key_dim);
    let first = positions - a.window.unwrap_or(positions).min(positions);
    let wide = |row: &[f32]| row.iter().map(|&v| f64::from(v)).collect::<Vec<_>>();
    for (head, (q, y)) in q.chunks_exact(key_dim).zip(y.chunks_exact_mut(value_dim)).enumerate() {
        let kv_head = head * kv_heads / a.heads;
        let q = wide(q);
        let score = |p: usize| {
            let start = (p * kv_heads + kv_head) * key_dim;
            let score = dot(&q, &wide(&keys[start..start + key_dim])) * f64::from(a.scale);
            a.soft_cap.map(f64::from).map_or(score, |cap| cap * (score / cap).tanh())
        };
        let scores: Vec<f64> = (first..positions).map(score).collect();
        let sink = sinks.map_or(f64::NEG_INFINITY, |sinks| sinks[head].into());
        let max = scores.iter().copied().fold(sink, f64::max);
        let mut total = (sink - max).exp();
        let mut sums = vec![0.0f64; value_dim];
        for (p, score) in (first..positions).zip(scores) {
            let weight = (score - max).exp();
            total += weight;
            let start = (p * kv_heads + kv_head) * value_dim;
            for (sum, &v) in sums.iter_mut().zip(&values[start..start + value_dim]) {
                *sum += weight * f64::from(v);
            }
        }
        for (y, sum) in y.iter_mut().zip(sums) {
            *y = (sum / total) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(heads: usize, kv_heads: usize, window: Option<usize>, soft_cap: Option<f32>) -> Heads {
        let attention = Attention { cache: 0, heads, scale: 1.0, window, soft_cap };
        Heads { attention, kv: KvLayer { kv_heads, key_dim: 1, value_dim: 1 } }
    }

    #[test]
    fn a_window_sees_the_last_positions_and_the_rows_own() {
        let positions: Vec<f32> = (0..=10).map(|p| p as f32).collect();
        let mut y = [0.0];
        attention(&[1.0], &[0.0; 11], &positions, None, &heads(1, 1, Some(4), None), &mut y);
        assert_eq!(y, [8.5], "mean of 7 to 10");
        attention(&[1.0], &[0.0; 11], &positions, None, &heads(1, 1, Some(99), None), &mut y);
        assert_eq!(y, [5.0], "a window longer than the sequence sees all");
    }

    #[test]
    fn consecutive_heads_share_a_key_head() {
        let mut y = [0.0; 4];
        attention(&[1.0; 4], &[0.0, 0.0], &[5.0, 7.0], None, &heads(4, 2, None, None), &mut y);
        assert_eq!(y, [5.0, 5.0, 7.0, 7.0]);
    }

    #[test]
    fn scores_are_capped_before_the_softmax() {
        let mut y = [0.0];
        attention(&[1.0], &[0.0, 1e6], &[0.0, 1.0], None, &heads(1, 1, None, Some(2.0)), &mut y);
        let expected = 1.0 / (1.0 + (-2f32).exp());
        assert!((y[0] - expected).abs() < 1e-6, "{y:?}");
    }

    #[test]
    fn huge_scores_do_not_overflow() {
        let mut y = [0.0];
        attention(&[1.0], &[3e4, 3e4], &[1.0, 3.0], None, &heads(1, 1, None, None), &mut y);
        assert_eq!(y, [2.0]);
    }

    #[test]
    fn a_sink_takes_its_share_and_gives_nothing() {
        let mut y = [0.0; 2];
        let sinks = [3f32.ln(), 1e4];
        attention(&[1.0; 2], &[0.0], &[8.0], Some(&sinks), &heads(2, 1, None, None), &mut y);
        assert!((y[0] - 2.0).abs() < 1e-6 && y[1] == 0.0, "{y:?}");
    }
}
