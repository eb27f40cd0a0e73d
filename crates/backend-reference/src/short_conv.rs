//! Causal depth-wise convolution over a few rows.

/// `y[d] = sum over j of weight[d, j] * row[t - kernel + 1 + j, d]` for one row `x` (`[D]`).
///
/// `past` holds the `kernel - 1` rows before it (`[kernel - 1, D]`, oldest first) and moves on by one row; `weight` is
/// `[D, kernel]`.
pub fn short_conv(x: &[f32], weight: &[f32], past: &mut [f32], y: &mut [f32]) {
    let width = x.len();
    let kernel = weight.len() / width;
    for (d, y) in y.iter_mut().enumerate() {
        let tap = |j: usize| if j + 1 == kernel { x[d] } else { past[j * width + d] };
        let product = |j: usize| f64::from(weight[d * kernel + j]) * f64::from(tap(j));
        *y = (0..kernel).map(product).sum::<f64>() as f32;
    }
    if kernel > 1 {
        past.copy_within(width.., 0);
        let last = past.len() - width;
        past[last..].copy_from_slice(x);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_tap_is_the_row_itself_and_the_past_moves_on() {
        let weight = [1.0, 10.0, 100.0, 0.0, 0.0, 1.0]; // [2, 3]
        let mut past = [0.0; 4];
        let mut y = [0.0; 2];
        for (x, expected) in
            [([1.0, 5.0], [100.0, 5.0]), ([2.0, 6.0], [210.0, 6.0]), ([3.0, 7.0], [321.0, 7.0])]
        {
            short_conv(&x, &weight, &mut past, &mut y);
            assert_eq!(y, expected);
        }
        assert_eq!(past, [2.0, 6.0, 3.0, 7.0]);
    }

    #[test]
    fn a_kernel_of_one_keeps_nothing() {
        let mut y = [0.0; 2];
        short_conv(&[1.0, 2.0], &[3.0, 4.0], &mut [], &mut y);
        assert_eq!(y, [3.0, 8.0]);
    }
}
