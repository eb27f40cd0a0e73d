//! The rows whose output is wanted.

/// Rows `rows` of `x` (`[T, width]`), packed.
pub fn wanted(x: &[f32], width: usize, rows: &[u32], y: &mut [f32]) {
    for (&row, y) in rows.iter().zip(y.chunks_exact_mut(width)) {
        y.copy_from_slice(&x[row as usize * width..][..width]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_packs_the_rows_in_their_order() {
        let mut y = [0.0; 4];
        wanted(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 2, &[0, 2], &mut y);
        assert_eq!(y, [0.0, 1.0, 4.0, 5.0]);
    }
}
