//! Where buffers lie in one arena: those that are not needed at the same time share space.

use crate::program::BufInfo;

/// The start of each buffer of `sizes[i]` numbers that lives from `infos[i].first` to `.last`, and the arena's length.
///
/// Big buffers are placed first, each at the lowest place where nothing is that lives at the same time.
pub fn place(infos: &[BufInfo], sizes: &[usize]) -> (Vec<usize>, usize) {
    let mut order: Vec<usize> = (0..infos.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(sizes[i]));
    let mut starts = vec![0; infos.len()];
    let mut placed: Vec<usize> = Vec::new(); // by start
    let mut len = 0;
    for i in order {
        let together = |&j: &usize| infos[i].first <= infos[j].last && infos[j].first <= infos[i].last;
        let mut start = 0;
        for j in placed.iter().copied().filter(together) {
            if starts[j] >= start + sizes[i] {
                break;
            }
            start = start.max(starts[j] + sizes[j]);
        }
        starts[i] = start;
        len = len.max(start + sizes[i]);
        placed.insert(placed.partition_point(|&j| starts[j] <= start), i);
    }
    (starts, len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_graph::Rows;
    use nibble_testkit::Rng;

    #[test]
    fn what_lives_together_lies_apart_and_space_is_used_again() {
        let mut rng = Rng::new(5);
        let infos: Vec<_> = (0..60)
            .map(|i| BufInfo { rows: Rows::Tokens, width: 1, first: i, last: i + rng.below(4), pairs: false })
            .collect();
        let sizes: Vec<_> = (0..60).map(|_| 16 * (1 + rng.below(10))).collect();
        let (starts, len) = place(&infos, &sizes);
        for i in 0..60 {
            assert!(starts[i] + sizes[i] <= len);
            for j in 0..i {
                let together = infos[i].first <= infos[j].last;
                let apart = starts[i] + sizes[i] <= starts[j] || starts[j] + sizes[j] <= starts[i];
                assert!(!together || apart, "{i} and {j}");
            }
        }
        assert!(len < sizes.iter().sum::<usize>() / 4, "{len}");
    }
}
