//! Element-wise functions.

use nibble_graph::Activation;

/// The function itself.
pub fn activation(f: Activation, x: f64) -> f64 {
    match f {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            0.5 * x * (1.0 + inner.tanh())
        }
        Activation::Relu2 => x.max(0.0) * x.max(0.0),
        Activation::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Activation::Softplus if x > 20.0 => x,
        Activation::Softplus => x.exp().ln_1p(),
        Activation::Tanh => x.tanh(),
        Activation::OssGate => x.min(7.0) / (1.0 + (-1.702 * x.min(7.0)).exp()),
        Activation::OssUp => 1.0 + x.clamp(-7.0, 7.0),
    }
}

/// `y = f(x)`
pub fn activate(f: Activation, x: &[f32], y: &mut [f32]) {
    for (y, &x) in y.iter_mut().zip(x) {
        *y = activation(f, x.into()) as f32;
    }
}

/// `y = f(gate) * up`
pub fn gated(f: Activation, gate: &[f32], up: &[f32], y: &mut [f32]) {
    for ((y, &gate), &up) in y.iter_mut().zip(gate).zip(up) {
        *y = (activation(f, gate.into()) * f64::from(up)) as f32;
    }
}

/// `y = cap * tanh(x / cap)`
pub fn soft_cap(x: &[f32], cap: f32, y: &mut [f32]) {
    let cap = f64::from(cap);
    for (y, &x) in y.iter_mut().zip(x) {
        *y = (cap * (f64::from(x) / cap).tanh()) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activations_have_their_published_values() {
        for (f, x, expected) in [
            (Activation::Silu, 1.0, 0.731_058_578_630_005),
            (Activation::GeluTanh, 1.0, 0.841_191_990_607_477),
            (Activation::GeluTanh, -1.0, -0.158_808_009_392_523),
            (Activation::Relu2, -3.0, 0.0),
            (Activation::Relu2, 3.0, 9.0),
            (Activation::Sigmoid, -1000.0, 0.0),
            (Activation::Softplus, 0.0, std::f64::consts::LN_2),
            (Activation::Softplus, 1000.0, 1000.0),
            (Activation::Softplus, -1000.0, 0.0),
            (Activation::Tanh, 0.5, 0.462_117_157_260_010),
            (Activation::OssGate, 1.0, 0.845_795_765_932_82),
            (Activation::OssGate, 99.0, 6.999953128303318),
            (Activation::OssUp, -99.0, -6.0),
            (Activation::OssUp, 2.5, 3.5),
        ] {
            assert!((activation(f, x) - expected).abs() < 1e-12, "{f:?}({x}) = {}", activation(f, x));
        }
    }

    #[test]
    fn soft_cap_leaves_small_numbers_and_bounds_large_ones() {
        let mut y = [0.0; 3];
        soft_cap(&[0.01, 1e30, -1e30], 20.0, &mut y);
        assert!((y[0] - 0.01).abs() < 1e-7);
        assert_eq!(y[1..], [20.0, -20.0]);
    }
}
