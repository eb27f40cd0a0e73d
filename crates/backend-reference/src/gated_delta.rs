//! The gated delta rule, one row.

use nibble_graph::GatedDelta;

/// One step of the rule that [`GatedDelta`] states.
///
/// `q` and `k` are `[key_heads * key_dim]`, `v` and `y` `[value_heads * value_dim]`, `decay` and `beta`
/// `[value_heads]`; `state` is `[value_heads, key_dim, value_dim]`.
pub fn gated_delta(
    [q, k, v]: [&[f32]; 3],
    decay: &[f32],
    beta: &[f32],
    d: &GatedDelta,
    state: &mut [f32],
    y: &mut [f32],
) {
    let heads = state.chunks_exact_mut(d.key_dim * d.value_dim).zip(y.chunks_exact_mut(d.value_dim));
    for (head, (state, y)) in heads.enumerate() {
        let key_head = if d.grouped { head * d.key_heads / d.value_heads } else { head % d.key_heads };
        let keys = key_head * d.key_dim..(key_head + 1) * d.key_dim;
        let (q, k) = (&q[keys.clone()], &k[keys]);
        let v = &v[head * d.value_dim..(head + 1) * d.value_dim];
        let (keep, beta) = (f64::from(decay[head]).exp(), f64::from(beta[head]));
        for (j, (y, &v)) in y.iter_mut().zip(v).enumerate() {
            // One column of the state at a time: columns do not touch each other.
            let column: Vec<f64> =
                (0..d.key_dim).map(|i| f64::from(state[i * d.value_dim + j]) * keep).collect();
            let known: f64 = column.iter().zip(k).map(|(s, &k)| s * f64::from(k)).sum();
            let delta = (f64::from(v) - known) * beta;
            let mut result = 0.0;
            for (i, column) in column.into_iter().enumerate() {
                let new = column + f64::from(k[i]) * delta;
                result += new * f64::from(q[i]);
                state[i * d.value_dim + j] = new as f32;
            }
            *y = (result * f64::from(d.scale)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: GatedDelta = GatedDelta {
        state: 0,
        key_heads: 1,
        value_heads: 1,
        key_dim: 2,
        value_dim: 2,
        scale: 1.0,
        grouped: true,
    };

    #[test]
    fn what_is_written_under_a_key_is_read_back_and_replaced() {
        let mut state = [0.0; 4];
        let mut y = [0.0; 2];
        let (first, second) = ([1.0, 0.0], [0.0, 1.0]);
        gated_delta([&first, &first, &[3.0, 4.0]], &[0.0], &[1.0], &RULE, &mut state, &mut y);
        assert_eq!(y, [3.0, 4.0]);
        gated_delta([&first, &second, &[9.0, 9.0]], &[0.0], &[1.0], &RULE, &mut state, &mut y);
        assert_eq!(y, [3.0, 4.0], "another key leaves it");
        gated_delta([&first, &first, &[5.0, 6.0]], &[0.0], &[0.5], &RULE, &mut state, &mut y);
        assert_eq!(y, [4.0, 5.0], "half-way to the new value");
        gated_delta([&second, &first, &[0.0, 0.0]], &[-2f32.ln()], &[0.0], &RULE, &mut state, &mut y);
        assert!((y[0] - 4.5).abs() < 1e-6, "half of it is forgotten: {y:?}");
    }

    #[test]
    fn value_heads_find_their_key_head_grouped_or_tiled() {
        for (grouped, expected) in [(true, [1.0, 1.0, 2.0, 2.0]), (false, [1.0, 2.0, 1.0, 2.0])] {
            let rule = GatedDelta { key_heads: 2, value_heads: 4, key_dim: 1, value_dim: 1, grouped, ..RULE };
            let mut y = [0.0; 4];
            let (q, k, v) = ([1.0, 2.0], [1.0, 1.0], [1.0; 4]);
            gated_delta([&q, &k, &v], &[0.0; 4], &[1.0; 4], &rule, &mut [0.0; 4], &mut y);
            assert_eq!(y, expected);
        }
    }
}
