//! Matrix products.

use nibble_quant::Encoded;

/// Sum of products in f64: eight partial sums, element `i` in number `i % 8`, joined pairwise.
///
/// # Panics
/// If the lengths differ.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    let mut sums = [0.0; 8];
    let (a_blocks, a_rest) = a.as_chunks::<8>();
    let (b_blocks, b_rest) = b.as_chunks::<8>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for i in 0..8 {
            sums[i] += a[i] * b[i];
        }
    }
    for (i, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[i] += a * b;
    }
    let [s0, s1, s2, s3, s4, s5, s6, s7] = sums;
    ((s0 + s4) + (s2 + s6)) + ((s1 + s5) + (s3 + s7))
}

/// `y[t, n] = sum over k of x[t, k] * weight[n, k]`; `x` is `[T, K]`, `weight` `[N, K]`, `y` `[T, N]`.
pub fn matmul(x: &[f32], weight: &Encoded, y: &mut [f32]) {
    let (n_len, k_len) = (weight.shape().rows(), weight.shape().row_len());
    let x: Vec<f64> = x.iter().map(|&v| v.into()).collect();
    let mut row = vec![0.0f32; k_len];
    let mut wide = vec![0.0f64; k_len];
    for n in 0..n_len {
        weight.decode_row(n, &mut row);
        wide.iter_mut().zip(&row).for_each(|(wide, &w)| *wide = w.into());
        for (x, y) in x.chunks_exact(k_len).zip(y.chunks_exact_mut(n_len)) {
            y[n] = dot(x, &wide) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::codec;
    use nibble_tensor::Shape;

    #[test]
    fn matmul_multiplies_by_the_transposed_weight() {
        // Rows of one block: d = 1, codes 1, 2, 3 ... and all minus one.
        let block = |q: &dyn Fn(i8) -> i8| {
            let mut bytes = half::f16::ONE.to_le_bytes().to_vec();
            bytes.extend((0..32).map(|i| q(i) as u8));
            bytes
        };
        let bytes = [block(&|i| i + 1), block(&|_| -1)].concat();
        let weight = Encoded::new("w", Shape::from([2, 32]), codec("q8_0"), bytes.into()).unwrap();
        let mut x = vec![0.0; 64];
        (x[0], x[31]) = (10.0, 1.0);
        x[32..].fill(0.5);
        let mut y = [0.0; 4];
        matmul(&x, &weight, &mut y);
        assert_eq!(y, [42.0, -11.0, 264.0, -16.0]);
    }

    #[test]
    fn dot_adds_what_does_not_fill_a_block() {
        for len in [0, 1, 7, 8, 9, 31] {
            let a: Vec<f64> = (0..len).map(f64::from).collect();
            let expected: f64 = a.iter().map(|a| a * a).sum();
            assert_eq!(dot(&a, &a), expected, "{len}");
        }
    }
}
