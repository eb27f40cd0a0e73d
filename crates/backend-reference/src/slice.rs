//! Some columns of each group.

use std::ops::Range;

/// Columns `columns` of every `group` consecutive numbers of `x`, packed.
pub fn slice(x: &[f32], group: usize, columns: Range<usize>, y: &mut [f32]) {
    for (x, y) in x.chunks_exact(group).zip(y.chunks_exact_mut(columns.len())) {
        y.copy_from_slice(&x[columns.clone()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slice_takes_the_same_columns_of_each_group() {
        let mut y = [0.0; 4];
        slice(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], 3, 1..3, &mut y);
        assert_eq!(y, [1.0, 2.0, 4.0, 5.0]);
    }
}
