//! Probabilities as integers, so that every processor finds the same ones and sums of them depend on no order.

/// 1 / ln 2, times 2^31.
pub const LOG2_E: u32 = 3_098_164_010;

/// 2^-f is 1 - f (a - f (b - f (c - ..))) with these, times 2^31, to 2.4e-9 for f in [0, 1): a polynomial through the
/// Chebyshev points of (1 - 2^-f) / f.
pub const EXP2: [u32; 7] = [1_488_522_236, 515_882_469, 119_193_747, 20_652_244, 2_856_024, 319_744, 24_275];

/// e^-distance to 3e-8 of it, times 2^40, for a distance from 0: that of a logit to the best one. Farther than 27.8 it is 0.
pub fn share(distance: f32) -> u64 {
    // Not a number is no token of any share either.
    if !matches!(distance, 0.0..32.0) {
        return 0;
    }
    let distance = (distance * (1 << 26) as f32) as u32;
    let power = high(distance << 1, LOG2_E);
    let (whole, fraction) = (power >> 26, power << 6);
    let sum = EXP2.iter().rev().fold(0, |sum, &factor| factor - high(fraction, sum));
    (u64::from((1 << 31) - high(fraction, sum)) << 9) >> whole
}

/// The upper half of a product.
fn high(a: u32, b: u32) -> u32 {
    ((u64::from(a) * u64::from(b)) >> 32) as u32
}

/// The upper half of a product.
pub fn upper(a: u64, b: u64) -> u64 {
    ((u128::from(a) * u128::from(b)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn shares_are_exponentials() {
        assert_eq!(share(0.0), 1 << 40);
        for i in 0..400_000 {
            let distance = i as f32 * 1e-4;
            let expected = (-f64::from(distance)).exp() * (1u64 << 40) as f64;
            let found = share(distance) as f64;
            assert!((found - expected).abs() <= 1.0 + 3e-8 * expected, "{distance}: {found} {expected}");
        }
        for far in [32.0, 1e30, f32::INFINITY, f32::NAN] {
            assert_eq!(share(far), 0);
        }
    }
}
