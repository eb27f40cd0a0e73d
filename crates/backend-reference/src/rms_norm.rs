//! Root-mean-square norm.

/// Scales each `weight.len()` consecutive numbers of `x` to unit root mean square, then by `weight`.
pub fn rms_norm(x: &[f32], weight: &[f32], eps: f32, y: &mut [f32]) {
    let len = weight.len();
    for (x, y) in x.chunks_exact(len).zip(y.chunks_exact_mut(len)) {
        let squares: f64 = x.iter().map(|&v| f64::from(v) * f64::from(v)).sum();
        let scale = (squares / len as f64 + f64::from(eps)).sqrt().recip();
        for ((y, &x), &w) in y.iter_mut().zip(x).zip(weight) {
            *y = (f64::from(x) * scale * f64::from(w)) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rms_norm_works_on_each_group_and_hears_eps_in_quiet_ones() {
        let mut y = [0.0; 4];
        rms_norm(&[3.0, 4.0, 0.0, 1e-3], &[1.0, 2.0], 5e-7, &mut y);
        let loud = 12.5f32.sqrt().recip();
        assert!((y[0] - 3.0 * loud).abs() < 1e-6 && (y[1] - 8.0 * loud).abs() < 1e-6);
        assert!((y[3] - 2.0).abs() < 1e-6, "mean square and eps are both 5e-7: {}", y[3]);
    }
}
