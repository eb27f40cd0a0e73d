//! Whether a result is what it must be.

use super::Expected;
use half::f16;

/// What is wrong with a case's buffers, if anything is.
pub fn wrong(expected: &Expected, buffers: &[Vec<u32>]) -> Option<String> {
    match expected {
        Expected::Floats { buffer, numbers, tolerance } => {
            let found = buffers[*buffer].iter().map(|&bits| f64::from(f32::from_bits(bits)));
            let allowed = tolerance * largest(numbers);
            first(found, numbers, |_| allowed)
        }
        Expected::Words { buffer, words } => {
            let mut pairs = buffers[*buffer].iter().zip(words).enumerate();
            let (i, (found, expected)) = pairs.find(|(_, (found, expected))| found != expected)?;
            Some(format!("number {i} is {found}, expected {expected}"))
        }
        Expected::Codes { codes, scales, numbers, tolerance } => {
            let scale = |half: usize| f64::from(f32::from_bits(buffers[*scales][2 * half]));
            let found: Vec<f64> = (0..numbers.len())
                .map(|i| scale(i / 16) * f64::from((buffers[*codes][i / 4] >> (8 * (i % 4))) as u8 as i8))
                .collect();
            let most = tolerance * largest(numbers);
            let sums: Vec<f64> = found.chunks(16).map(|half| half.iter().sum()).collect();
            let found_sums = (0..sums.len()).map(|h| f64::from(f32::from_bits(buffers[*scales][2 * h + 1])));
            // A code is the nearest one, and a scale such that the largest of 32 numbers has the largest code.
            let step = |i: usize| {
                let block = &numbers[i / 32 * 32..numbers.len().min(i / 32 * 32 + 32)];
                block.iter().fold(0.0f64, |m, x| m.max(x.abs())) / 127.0
            };
            first(found.iter().copied(), numbers, |i| most + 0.51 * step(i))
                .or_else(|| first(found_sums, &sums, |_| 1e-3 * largest(&sums)))
        }
        Expected::Halves { buffer, scales, row_len, numbers, tolerance } => {
            let found: Vec<f64> = (0..numbers.len())
                .map(|i| {
                    // In fours, in the order 0, 2, 1, 3.
                    let place = i / 4 * 4 + [0, 2, 1, 3][i % 4];
                    let bits = (buffers[*buffer][place / 2] >> (16 * (place % 2))) as u16;
                    let scale = f32::from_bits(buffers[*scales][i / row_len]);
                    f16::from_bits(bits).to_f64() * f64::from(scale)
                })
                .collect();
            let allowed = tolerance * largest(numbers);
            first(found.into_iter(), numbers, |_| allowed)
        }
    }
}

/// The largest number that a kernel made.
fn largest(numbers: &[f64]) -> f64 {
    let made = numbers.iter().filter(|&&x| x != f64::from(super::UNTOUCHED));
    made.fold(1e-30, |most, x| x.abs().max(most))
}

/// The first number that is further off than it may be; NaN always is.
fn first(
    found: impl Iterator<Item = f64>,
    expected: &[f64],
    allowed: impl Fn(usize) -> f64,
) -> Option<String> {
    let mut pairs = found.zip(expected).enumerate();
    let off = |i: usize, by: f64| by.is_nan() || by > allowed(i);
    let (i, (found, expected)) = pairs.find(|(i, (f, e))| off(*i, (f - **e).abs()))?;
    Some(format!("number {i} is {found}, expected {expected}"))
}
