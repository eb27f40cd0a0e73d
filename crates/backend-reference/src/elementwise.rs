//! Sums and products of elements.

/// `y = a + b`
pub fn add(a: &[f32], b: &[f32], y: &mut [f32]) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = a + b;
    }
}

/// `y = a * b`
pub fn mul(a: &[f32], b: &[f32], y: &mut [f32]) {
    for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
        *y = a * b;
    }
}

/// `y = x * factor`
pub fn scale(x: &[f32], factor: f32, y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = x * factor;
    }
}

/// Adds `weight` (`[D]`) to each row of `x` (`[T, D]`).
pub fn bias(x: &[f32], weight: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(weight.len()).zip(y.chunks_exact_mut(weight.len())) {
        add(x, weight, y);
    }
}

/// Multiplies each row of `x` (`[T, D]`) by `weight` (`[D]`, or `[1]` for all).
pub fn gain(x: &[f32], weight: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(weight.len()).zip(y.chunks_exact_mut(weight.len())) {
        mul(x, weight, y);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gain_of_one_number_holds_for_all_columns() {
        let mut y = [0.0; 4];
        gain(&[1.0, 2.0, 3.0, 4.0], &[2.0], &mut y);
        assert_eq!(y, [2.0, 4.0, 6.0, 8.0]);
        gain(&[1.0, 2.0, 3.0, 4.0], &[2.0, 3.0], &mut y);
        assert_eq!(y, [2.0, 6.0, 6.0, 12.0]);
        bias(&[1.0, 2.0, 3.0, 4.0], &[10.0, 20.0], &mut y);
        assert_eq!(y, [11.0, 22.0, 13.0, 24.0]);
    }
}
