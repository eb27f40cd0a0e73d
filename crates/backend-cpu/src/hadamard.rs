//! The normalized Walsh-Hadamard transform: its own inverse, it spreads outliers before rounding to 4 bits.

/// Transforms `x` in place, in chunks whose length is a power of two: the longest that fits, then the rest alike.
pub fn rotate(mut x: &mut [f32]) {
    while !x.is_empty() {
        let len = 1 << x.len().ilog2();
        let (chunk, rest) = x.split_at_mut(len);
        rotate_chunk(chunk);
        x = rest;
    }
}

fn rotate_chunk(x: &mut [f32]) {
    let mut half = 1;
    while half < x.len() {
        for pair in x.chunks_exact_mut(2 * half) {
            let (a, b) = pair.split_at_mut(half);
            for (a, b) in a.iter_mut().zip(b) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
    let scale = (x.len() as f32).sqrt().recip();
    x.iter_mut().for_each(|x| *x *= scale);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::uniform;

    #[test]
    fn twice_is_the_identity_and_lengths_stay() {
        for len in [1, 2, 16, 24, 64, 80, 96, 128, 256] {
            let x = uniform(len as u64, len);
            let mut y = x.clone();
            rotate(&mut y);
            let squares = |x: &[f32]| x.iter().map(|x| x * x).sum::<f32>();
            assert!((squares(&x) / squares(&y) - 1.0).abs() < 1e-5);
            rotate(&mut y);
            assert!(x.iter().zip(&y).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}
