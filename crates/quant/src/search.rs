//! The published searches for scales, shared by the encoders that need more than a maximum.
//!
//! All sums run in index order in single precision, without fused operations: another order gives other files.
//! Source: the GGUF reference quantizers.

/// Scales below this are taken for zero.
pub const TINY: f32 = 1e-15;

/// The nearest integer, ties to even, for magnitudes below 2^22.
pub fn nearest(x: f32) -> i32 {
    ((x + 12_582_912.0).to_bits() & 0x7f_ffff) as i32 - 0x40_0000
}

/// The nearest integer in `0..=top`.
pub fn nearest_up_to(x: f32, top: u8) -> u8 {
    nearest(x).clamp(0, i32::from(top)) as u8
}

/// The first element of the largest magnitude, with its sign; 0 if there is none. NaN is larger than all: a scale must show it.
pub fn farthest(x: &[f32]) -> f32 {
    // As integers, magnitudes order like numbers, with infinity and NaN on top.
    x.iter().fold(0.0, |far: f32, &x| if x.abs().to_bits() > far.abs().to_bits() { x } else { far })
}

/// The largest magnitude.
pub fn magnitude(x: &[f32]) -> f32 {
    farthest(x).abs()
}

/// The least and the largest number.
pub fn range(x: &[f32]) -> (f32, f32) {
    let least = x.iter().copied().fold(x[0], |least, x| if x < least { x } else { least });
    let largest = x.iter().copied().fold(x[0], |largest, x| if x > largest { x } else { largest });
    (least, largest)
}

/// `1 / x`, or 0 for 0.
pub fn inverse(x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { 1.0 / x }
}

/// The mean of the squares.
pub fn mean_square(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x) / x.len() as f32
}

/// What each of `N` numbers counts: by the importance of its column and by how it stands out from `around`, the mean
/// square of its surroundings.
pub fn column_weights<const N: usize>(x: &[f32], importance: &[f32], around: f32) -> [f32; N] {
    std::array::from_fn(|j| importance[j] * (around + x[j] * x[j]).sqrt())
}

/// Scale, minimum and codes in `0..=top` for which `x` is about `scale * code + minimum`: evenly over the whole range.
pub fn over_range(x: &[f32], top: u8) -> (f32, f32, [u8; 32]) {
    let (min, max) = range(x);
    let scale = (max - min) / f32::from(top);
    let inverse = inverse(scale);
    let code = |j: usize| ((x[j] - min) * inverse + 0.5).min(f32::from(top)) as u8;
    (scale, min, std::array::from_fn(code))
}

/// The candidates of [`scale_and_min`].
pub struct Steps {
    /// What the first candidate adds to the largest code.
    pub first: f32,
    /// What each candidate adds to the one before.
    pub step: f32,
    /// The number of the last candidate, counted from 0.
    pub last: u8,
    /// Whether errors count by magnitude rather than by square.
    pub absolute: bool,
}

impl Steps {
    fn error(&self, x: &[f32], w: &[f32], codes: &[u8], scale: f32, low: f32) -> f32 {
        let deviation = |x: f32, code: u8| scale * f32::from(code) + low - x;
        let terms = x.iter().zip(w).zip(codes);
        terms.fold(0.0, |sum, ((&x, w), &code)| {
            let deviation = deviation(x, code);
            sum + w * if self.absolute { deviation.abs() } else { deviation * deviation }
        })
    }
}

/// The candidates of [`scale_and_min`] when columns have an importance.
pub const WEIGHTED: Steps = Steps { first: -0.9, step: 0.05, last: 36, absolute: false };

/// As [`over_range`], but with the least error weighted by `w` and a minimum that is not above 0.
pub fn over_range_weighted(x: &[f32], w: &[f32; 32], top: u8) -> (f32, f32, [u8; 32]) {
    let mut codes = [0; 32];
    let (scale, min) = scale_and_min(x, w, top, &WEIGHTED, &mut codes);
    (scale, -min, codes)
}

/// Finds `scale` and `min` so that `x` is about `scale * code - min`, with codes in `0..=top`, `min >= 0` and the
/// least error weighted by `w`; at most 32 numbers.
pub fn scale_and_min(x: &[f32], w: &[f32], top: u8, steps: &Steps, codes: &mut [u8]) -> (f32, f32) {
    let (least, high) = range(x);
    let mut low = least.min(0.0);
    if high <= low {
        codes.fill(0);
        return (0.0, -low);
    }
    let inverse = f32::from(top) / (high - low);
    for (code, x) in codes.iter_mut().zip(x) {
        *code = nearest_up_to(inverse * (x - low), top);
    }
    let mut scale = 1.0 / inverse;
    let mut best = steps.error(x, w, codes, scale, low);

    let sum_w = w.iter().fold(0.0, |sum, w| sum + w);
    let sum_x = w.iter().zip(x).fold(0.0, |sum, (w, x)| sum + w * x);
    let mut tried = [0; 32];
    let tried = &mut tried[..x.len()];
    for s in 0..=steps.last {
        let inverse = (steps.first + steps.step * f32::from(s) + f32::from(top)) / (high - low);
        let (mut sum_l, mut sum_ll, mut sum_xl) = (0.0, 0.0, 0.0);
        for ((code, x), w) in tried.iter_mut().zip(x).zip(w) {
            *code = nearest_up_to(inverse * (x - low), top);
            let l = f32::from(*code);
            sum_l += w * l;
            sum_ll += w * l * l;
            sum_xl += w * l * x;
        }
        let determinant = sum_w * sum_ll - sum_l * sum_l;
        if determinant > 0.0 {
            let mut slope = (sum_w * sum_xl - sum_x * sum_l) / determinant;
            let mut start = (sum_ll * sum_x - sum_l * sum_xl) / determinant;
            if start > 0.0 {
                start = 0.0;
                slope = sum_xl / sum_ll;
            }
            let error = steps.error(x, w, tried, slope, start);
            if error < best {
                codes.copy_from_slice(tried);
                (best, scale, low) = (error, slope, start);
            }
        }
    }
    (scale, -low)
}

/// Finds the scale for which `x` is about `scale * code`, with codes in `-top..top` and the least error weighted by
/// `w`, or by `x * x`; at most 32 numbers. Codes are stored with `top` added.
pub fn symmetric(x: &[f32], w: Option<&[f32]>, top: u8, codes: &mut [u8]) -> f32 {
    let far = farthest(x);
    if far.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let bound = i32::from(top);
    let mut tried = [0; 32];
    let tried = &mut tried[..x.len()];
    let fit = |inverse: f32, codes: &mut [u8]| {
        let (mut sum_xl, mut sum_ll) = (0.0, 0.0);
        for (i, (code, &x)) in codes.iter_mut().zip(x).enumerate() {
            let l = nearest(inverse * x).clamp(-bound, bound - 1);
            *code = (l + bound) as u8;
            let (w, l) = (w.map_or(x * x, |w| w[i]), l as f32);
            sum_xl += w * x * l;
            sum_ll += w * l * l;
        }
        (sum_xl, sum_ll)
    };
    let (sum_xl, sum_ll) = fit(-f32::from(top) / far, codes);
    let mut scale = if sum_ll == 0.0 { 0.0 } else { sum_xl / sum_ll };
    let mut best = scale * sum_xl;
    for s in (-9i8..=9).filter(|&s| s != 0) {
        let (sum_xl, sum_ll) = fit(-(f32::from(top) + 0.1 * f32::from(s)) / far, tried);
        if sum_ll > 0.0 && sum_xl * sum_xl > best * sum_ll {
            codes.copy_from_slice(tried);
            scale = sum_xl / sum_ll;
            best = scale * sum_xl;
        }
    }
    scale
}

/// Passes of coordinate descent in the two searches below.
const PASSES: usize = 5;

/// As [`symmetric`] with weights `x * x`, but starts at one scale and then moves one code at a time while that lowers
/// the error.
pub fn symmetric_by_descent(x: &[f32], top: u8, codes: &mut [u8]) -> f32 {
    let far = farthest(x);
    if far.abs() < TINY {
        codes.fill(0);
        return 0.0;
    }
    let bound = i32::from(top);
    let clamp = |l: i32| l.clamp(-bound, bound - 1);
    let inverse = -f32::from(top) / far;
    let (mut sum_xl, mut sum_ll) = (0.0, 0.0);
    for (code, &x) in codes.iter_mut().zip(x) {
        let l = clamp(nearest(inverse * x));
        *code = (l + bound) as u8;
        let (w, l) = (x * x, l as f32);
        sum_xl += w * x * l;
        sum_ll += w * l * l;
    }
    for _ in 0..PASSES {
        let mut changed = false;
        for (code, &x) in codes.iter_mut().zip(x) {
            let (w, old) = (x * x, i32::from(*code) - bound);
            let rest_xl = sum_xl - w * x * old as f32;
            if rest_xl > 0.0 {
                let rest_ll = sum_ll - w * old as f32 * old as f32;
                let new = clamp(nearest(x * rest_ll / rest_xl));
                let (xl, ll) = (rest_xl + w * x * new as f32, rest_ll + w * new as f32 * new as f32);
                if new != old && ll > 0.0 && xl * xl * sum_ll > sum_xl * sum_xl * ll {
                    *code = (new + bound) as u8;
                    (sum_xl, sum_ll) = (xl, ll);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    if sum_ll == 0.0 { 0.0 } else { sum_xl / sum_ll }
}

/// Finds the scale for which `x`, none of them negative, is about `scale * code`, with codes in `0..=top` and the
/// least error weighted by `w`.
pub fn positive(x: &[f32], w: &[f32], top: u8, codes: &mut [u8]) -> f32 {
    let max = x.iter().copied().fold(0.0, f32::max);
    if max < TINY {
        codes.fill(0);
        return 0.0;
    }
    let error = |inverse: f32| {
        let scale = 1.0 / inverse;
        x.iter().zip(w).fold(0.0, |sum, (x, w)| {
            let deviation = x - scale * f32::from(nearest_up_to(inverse * x, top));
            sum + w * deviation * deviation
        })
    };
    let mut inverse = f32::from(top) / max;
    let mut best = error(inverse);
    for s in (-4i8..=4).filter(|&s| s != 0) {
        let candidate = (0.1 * f32::from(s) + f32::from(top)) / max;
        let error = error(candidate);
        if error < best {
            (best, inverse) = (error, candidate);
        }
    }
    let (mut sum_xl, mut sum_ll) = (0.0, 0.0);
    for ((code, x), w) in codes.iter_mut().zip(x).zip(w) {
        *code = nearest_up_to(inverse * x, top);
        let l = f32::from(*code);
        sum_xl += w * x * l;
        sum_ll += w * l * l;
    }
    for _ in 0..PASSES {
        let mut changed = false;
        for ((code, x), w) in codes.iter_mut().zip(x).zip(w) {
            let old = f32::from(*code);
            let (rest_xl, rest_ll) = (sum_xl - w * x * old, sum_ll - w * old * old);
            if rest_xl > 0.0 && rest_ll > 0.0 {
                let new = nearest_up_to(x * rest_ll / rest_xl, top);
                let l = f32::from(new);
                let (xl, ll) = (rest_xl + w * x * l, rest_ll + w * l * l);
                if new != *code && xl * xl * sum_ll > sum_xl * sum_xl * ll {
                    *code = new;
                    (sum_xl, sum_ll) = (xl, ll);
                    changed = true;
                }
            }
        }
        if !changed {
            break;
        }
    }
    if sum_ll > 0.0 { sum_xl / sum_ll } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearest_rounds_ties_to_even() {
        let rounded = [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 2.51, 4_000_000.0].map(nearest);
        assert_eq!(rounded, [-2, -2, 0, 0, 2, 2, 3, 4_000_000]);
    }

    #[test]
    fn farthest_keeps_the_sign_of_the_first() {
        assert_eq!(farthest(&[1.0, -3.0, 3.0]), -3.0);
        assert_eq!(farthest(&[]), 0.0);
    }

    #[test]
    fn scale_and_min_finds_an_exact_grid() {
        let x: [f32; 16] = std::array::from_fn(|i| 0.25 * i as f32 - 1.0);
        let steps = Steps { first: -1.0, step: 0.1, last: 20, absolute: false };
        let mut codes = [0; 16];
        assert_eq!(scale_and_min(&x, &[1.0; 16], 15, &steps, &mut codes), (0.25, 1.0));
        assert_eq!(codes, std::array::from_fn(|i| i as u8));
    }
}
