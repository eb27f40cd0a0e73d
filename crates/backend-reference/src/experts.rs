//! The matrices of the chosen experts, and the sum of their results.

use crate::dot;
use nibble_quant::Encoded;

/// For each slot of each row, the matrix of its expert times the row, or times the slot's own part of it.
///
/// `x` is `[T, K]` or `[T, used * K]`, `route` `[T, 2 * used]` as [`crate::route`] writes it, `weight` `[E, N, K]`,
/// `y` `[T, used * N]`.
pub fn expert_matmul(x: &[f32], route: &[f32], used: usize, weight: &Encoded, y: &mut [f32]) {
    let shape = weight.shape();
    let &[_, n_len, k_len] = shape.dims() else { unreachable!("a stack of matrices") };
    let rows = route.len() / (2 * used);
    let x: Vec<f64> = x.iter().map(|&v| v.into()).collect();
    let width = x.len() / rows.max(1);
    let mut row = vec![0.0f32; k_len];
    let mut wide = vec![0.0f64; k_len];
    for t in 0..rows {
        for slot in 0..used {
            let expert = route[(2 * t + 1) * used + slot] as usize;
            let part = if width == k_len { 0 } else { slot * k_len };
            let x = &x[t * width + part..][..k_len];
            for n in 0..n_len {
                weight.decode_row(expert * n_len + n, &mut row);
                wide.iter_mut().zip(&row).for_each(|(wide, &w)| *wide = w.into());
                y[(t * used + slot) * n_len + n] = dot(x, &wide) as f32;
            }
        }
    }
}

/// `y` (`[T, used * D]`): `x` plus, for each slot of each row, the row of its expert in `weight` (`[E, D]`).
pub fn expert_bias(x: &[f32], route: &[f32], used: usize, weight: &[f32], y: &mut [f32]) {
    let rows = route.len() / (2 * used);
    let width = y.len() / (rows * used).max(1);
    for (slot, (x, y)) in x.chunks_exact(width).zip(y.chunks_exact_mut(width)).enumerate() {
        let expert = route[(2 * (slot / used) + 1) * used + slot % used] as usize;
        for ((y, x), w) in y.iter_mut().zip(x).zip(&weight[expert * width..]) {
            *y = x + w;
        }
    }
}

/// The parts of each row of `x` (`[T, used * D]`) summed with their weights in `route`, in slot order; `y` is `[T, D]`.
pub fn combine(x: &[f32], route: &[f32], used: usize, y: &mut [f32]) {
    let rows = route.len() / (2 * used);
    let width = y.len() / rows.max(1);
    for t in 0..rows {
        for d in 0..width {
            let part = |slot: usize| f64::from(x[(t * used + slot) * width + d]);
            let sum: f64 = (0..used).map(|slot| part(slot) * f64::from(route[2 * t * used + slot])).sum();
            y[t * width + d] = sum as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::codec;
    use nibble_tensor::Shape;

    #[test]
    fn each_slot_uses_its_expert_and_its_own_part() {
        // Expert e is one row of ones times e + 1.
        let block = |e: u8| [half::f16::ONE.to_le_bytes().to_vec(), vec![e + 1; 32]].concat();
        let bytes = [block(0), block(1), block(2)].concat();
        let weight = Encoded::new("w", Shape::from([3, 1, 32]), codec("q8_0"), bytes.into()).unwrap();
        let route = [0.5, 0.5, 2.0, 0.0, 0.25, 0.75, 1.0, 2.0]; // rows use experts 2, 0 and 1, 2
        let mut y = [0.0; 4];
        let shared = [vec![1.0; 32], vec![2.0; 32]].concat();
        expert_matmul(&shared, &route, 2, &weight, &mut y);
        assert_eq!(y, [96.0, 32.0, 128.0, 192.0]);
        let own = [vec![1.0; 32], vec![2.0; 32], vec![3.0; 32], vec![4.0; 32]].concat();
        expert_matmul(&own, &route, 2, &weight, &mut y);
        assert_eq!(y, [96.0, 64.0, 192.0, 384.0]);
        let mut sums = [0.0; 2];
        combine(&y, &route, 2, &mut sums);
        assert_eq!(sums, [80.0, 336.0]);
        let mut biased = [0.0; 4];
        expert_bias(&y, &route, 2, &[0.5, 1.5, 2.5], &mut biased);
        assert_eq!(biased, [98.5, 64.5, 193.5, 386.5]);
    }
}
