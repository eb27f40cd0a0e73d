//! `rms_norm` and `l2_norm`.

use crate::{dispatch::by_isa, kernels::Isa, lanes::Lanes};

/// Scales each `weight.len()` numbers of `x` to unit root mean square, then by `weight`.
pub fn rms_norm(isa: Isa, x: &mut [f32], weight: &[f32], eps: f32) {
    for x in x.chunks_exact_mut(weight.len()) {
        let scale = (sum_of_squares(isa, x) / x.len() as f32 + eps).sqrt().recip();
        by_isa!(isa, scale_by(x: &mut [f32], scale: f32, weight: &[f32]));
    }
}

/// Divides each `group` numbers of `x` by the root of `eps` and their sum of squares.
pub fn l2_norm(isa: Isa, x: &mut [f32], group: usize, eps: f32) {
    for x in x.chunks_exact_mut(group) {
        let scale = (sum_of_squares(isa, x) + eps).sqrt().recip();
        x.iter_mut().for_each(|x| *x *= scale);
    }
}

fn sum_of_squares(isa: Isa, x: &[f32]) -> f32 {
    by_isa!(isa, squares(x: &[f32]) -> f32)
}

#[inline(always)]
unsafe fn scale_by<L: Lanes>(x: &mut [f32], scale: f32, weight: &[f32]) {
    let whole = x.len() / L::LEN * L::LEN;
    assert_eq!(x.len(), weight.len());
    for i in (0..whole).step_by(L::LEN) {
        // SAFETY: `L` was detected, and both slices reach past this vector.
        unsafe {
            let at = x.as_mut_ptr().add(i);
            L::load(at).mul(L::splat(scale)).mul(L::load(weight.as_ptr().add(i))).store(at);
        }
    }
    for (x, w) in x[whole..].iter_mut().zip(&weight[whole..]) {
        *x = *x * scale * w;
    }
}

/// Squares summed in 16 lanes, then in a fixed tree, whatever the vector length is.
#[inline(always)]
unsafe fn squares<L: Lanes>(x: &[f32]) -> f32 {
    let mut lanes = [0.0f32; 16];
    let (whole, tail) = x.as_chunks::<16>();
    for i in (0..16).step_by(L::LEN) {
        // SAFETY: `L` was detected; `i + LEN <= 16`.
        unsafe {
            let mut sum = L::splat(0.0);
            for x in whole {
                let x = L::load(x.as_ptr().add(i));
                sum = x.mul_add(x, sum);
            }
            sum.store(lanes.as_mut_ptr().add(i));
        }
    }
    for (lane, x) in lanes.iter_mut().zip(tail) {
        *lane = x.mul_add(*x, *lane);
    }
    let mut width = 8;
    while width > 0 {
        for i in 0..width {
            lanes[i] += lanes[i + width];
        }
        width /= 2;
    }
    lanes[0]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::uniform;

    #[test]
    fn isas_agree_and_match_exact_arithmetic() {
        for len in [1, 15, 64, 257, 2048] {
            let weight = uniform(9, len);
            let mut before = uniform(len as u64, 3 * len);
            before[..len].fill(1e-4); // a row so quiet that a wrong eps is heard
            for isa in Isa::available() {
                let mut scalar = before.clone();
                rms_norm(Isa::Scalar, &mut scalar, &weight, 1e-6);
                let mut y = before.clone();
                rms_norm(isa, &mut y, &weight, 1e-6);
                assert_eq!(y, scalar, "{isa}");
                for (y, x) in y.chunks(len).zip(before.chunks(len)) {
                    let squares: f64 = x.iter().map(|&x| f64::from(x).powi(2)).sum();
                    let scale = (squares / len as f64 + 1e-6).sqrt().recip();
                    for i in 0..len {
                        let expected = f64::from(x[i]) * scale * f64::from(weight[i]);
                        assert!((f64::from(y[i]) - expected).abs() < 1e-5, "{} {expected}", y[i]);
                    }
                }
            }
        }
    }
}
