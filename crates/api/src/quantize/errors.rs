//! How far numbers move when they are rounded.

/// What the rounding of a tensor cost. All sums are in f64.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The root of the mean squared difference between the numbers before and now.
    pub rmse: f64,
    /// The largest difference.
    pub max: f64,
    /// The cosine of the angle between all the numbers before and all of them now; 1 if nothing moved.
    pub cosine: f64,
}

/// Sums over some numbers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sums {
    squares: f64,
    max: f64,
    product: f64,
    before: f64,
    now: f64,
}

impl Sums {
    pub fn new(before: &[f32], now: &[f32]) -> Self {
        let mut sums = Self::default();
        for (&a, &b) in before.iter().zip(now) {
            let (a, b) = (f64::from(a), f64::from(b));
            sums.squares += (a - b).powi(2);
            sums.max = sums.max.max((a - b).abs());
            sums.product += a * b;
            sums.before += a * a;
            sums.now += b * b;
        }
        sums
    }

    pub fn add(&mut self, other: &Self) {
        self.squares += other.squares;
        self.max = self.max.max(other.max);
        self.product += other.product;
        self.before += other.before;
        self.now += other.now;
    }

    /// What they say of `count` numbers.
    pub fn errors(&self, count: usize) -> Errors {
        let rmse = (self.squares / count.max(1) as f64).sqrt();
        let cosine = match self.squares == 0.0 {
            true => 1.0, // also where all numbers are zero
            false => self.product / (self.before.sqrt() * self.now.sqrt()).max(f64::MIN_POSITIVE),
        };
        Errors { rmse, max: self.max, cosine }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_parts_say_what_the_whole_does() {
        // Differences 1, 0, 0, -3; products 6 + 16 + 0 + 0; lengths sqrt(3 * 3 + 4 * 4 + 0 + 0) and sqrt(4 + 16 + 9).
        let (before, now) = ([3.0, 4.0, 0.0, 0.0], [2.0, 4.0, 0.0, 3.0]);
        let mut sums = Sums::new(&before[..1], &now[..1]);
        sums.add(&Sums::new(&before[1..], &now[1..]));
        let errors = sums.errors(4);
        assert_eq!((errors.rmse, errors.max), (2.5f64.sqrt(), 3.0));
        assert!((errors.cosine - 22.0 / (5.0 * 29f64.sqrt())).abs() < 1e-15, "{errors:?}");
    }

    #[test]
    fn what_does_not_move_has_cosine_one_and_what_vanishes_zero() {
        assert_eq!(Sums::new(&[0.0; 4], &[0.0; 4]).errors(4), Errors { rmse: 0.0, max: 0.0, cosine: 1.0 });
        assert_eq!(Sums::new(&[1.0; 4], &[0.0; 4]).errors(4), Errors { rmse: 1.0, max: 1.0, cosine: 0.0 });
    }
}
