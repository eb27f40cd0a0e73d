//! Euclidean norm.

/// `y = x / sqrt(sum of squares + eps)` over each `group` consecutive numbers.
pub fn l2_norm(x: &[f32], group: usize, eps: f32, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(group).zip(y.chunks_exact_mut(group)) {
        let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        let scale = (squares + f64::from(eps)).sqrt().recip();
        for (y, &x) in y.iter_mut().zip(x) {
            *y = (f64::from(x) * scale) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn l2_norm_makes_unit_vectors_of_each_group() {
        let mut y = [0.0; 4];
        l2_norm(&[3.0, 4.0, 0.0, 0.0], 2, 1e-6, &mut y);
        assert!((y[0] - 0.6).abs() < 1e-6 && (y[1] - 0.8).abs() < 1e-6);
        assert_eq!(y[2..], [0.0, 0.0]);
    }
}
