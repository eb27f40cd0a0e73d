//! Means with their standard errors.

/// The first two moments of some numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moments {
    count: usize,
    mean: f64,
    /// Sum of squared distances to the mean.
    squares: f64,
}

impl Moments {
    /// Takes in a number (Welford's update, which loses nothing where all numbers are alike).
    pub fn add(&mut self, x: f64) {
        self.count += 1;
        let before = x - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (x - self.mean);
    }

    pub fn count(&self) -> usize {
        self.count
    }

    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// The standard error of the mean: the root of the variance over `count - 1`.
    pub fn error(&self) -> f64 {
        let n = self.count as f64;
        if self.count < 2 { 0.0 } else { (self.squares / n / (n - 1.0)).sqrt() }
    }
}

/// The number below which a share of sorted numbers lies, between two of them if need be; 0 if there are none.
pub(crate) fn percentile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let at = share.clamp(0.0, 1.0) * last as f64;
    let below = at.floor() as usize;
    let part = at - below as f64;
    sorted[below] * (1.0 - part) + sorted[(below + 1).min(last)] * part
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_errors_and_percentiles_are_those_of_the_definition() {
        let mut m = Moments::default();
        [1.0, 2.0, 3.0, 6.0].iter().for_each(|&x| m.add(x));
        // Variance 3.5 over 4 numbers; over 3 for the error.
        assert_eq!((m.count(), m.mean()), (4, 3.0));
        assert!((m.error() - (3.5f64 / 3.0).sqrt()).abs() < 1e-12);
        let sorted = [1.0, 2.0, 4.0];
        assert_eq!([0.0, 0.5, 0.75, 1.0].map(|p| percentile(&sorted, p)), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(percentile(&[], 0.5), 0.0);
    }
}
