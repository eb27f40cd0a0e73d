//! Columns in another order.

/// For each of `columns` the number of `x` that it names, 0 for -1; `x` is `[T, width]`.
pub fn columns(x: &[f32], width: usize, columns: &[f32], y: &mut [f32]) {
    for (x, y) in x.chunks_exact(width).zip(y.chunks_exact_mut(columns.len())) {
        y.iter_mut().zip(columns).for_each(|(y, &c)| *y = if c < 0.0 { 0.0 } else { x[c as usize] });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_picked_and_missing_ones_are_zero() {
        let mut y = [1.0; 6];
        columns(&[1.0, 2.0, 3.0, 4.0], 2, &[1.0, -1.0, 0.0], &mut y);
        assert_eq!(y, [2.0, 0.0, 1.0, 4.0, 0.0, 3.0]);
    }
}
