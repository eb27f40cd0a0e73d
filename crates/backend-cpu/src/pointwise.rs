//! Ops that treat each number alone: `bias`, `gain`, `add`, `mul`, `scale`, `activate`, `gated`, `soft_cap`.
//!
//! Each changes its first operand in place, so that a chain of them follows a matrix product while its result is still
//! in the cache. Every number goes through the same vector code wherever it stands, so a cut changes nothing.

use crate::{attend::tanh, dispatch::by_isa, kernels::Isa, lanes::Lanes};
use nibble_graph::Activation;

/// What happens to each number `y`, with `x` from a second operand.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pointwise {
    /// `y + x`
    Add,
    /// `y * x`
    Mul,
    /// `y * factor`
    Scale(f32),
    /// `activation(y)`
    Activate(Activation),
    /// `activation(y) * x`
    Gated(Activation),
    /// `cap * tanh(y / cap)`
    SoftCap(f32),
}

impl Pointwise {
    /// Whether it has a second operand.
    pub fn is_binary(self) -> bool {
        matches!(self, Self::Add | Self::Mul | Self::Gated(_))
    }
}

/// Applies `op` to `y`; `x` is as long as `y` for binary ops and not looked at for others.
pub fn apply(isa: Isa, op: Pointwise, y: &mut [f32], x: &[f32]) {
    let x = if op.is_binary() { x } else { &[] };
    assert!(!op.is_binary() || x.len() == y.len(), "{op:?} of {} and {} numbers", y.len(), x.len());
    by_isa!(isa, apply_to(op: Pointwise, y: &mut [f32], x: &[f32]));
}

/// `y = value` vector by vector, where `value` may use `$v`, the vector of `y`, and `$w`, that of `x`. The tail goes
/// through a vector of its own. A macro and no function: the compiler does not inline a closure's instructions.
macro_rules! each {
    ($lanes:ident, $y:ident, $x:ident, |$v:ident, $w:ident| $value:expr) => {{
        let whole = $y.len() / $lanes::LEN * $lanes::LEN;
        for i in (0..whole).step_by($lanes::LEN) {
            let at = $y.as_mut_ptr().add(i);
            let $v = $lanes::load(at);
            let $w = if $x.is_empty() { $v } else { $lanes::load($x.as_ptr().add(i)) };
            $value.store(at);
        }
        if whole < $y.len() {
            let (mut tail, mut other) = ([0.0; 16], [0.0; 16]);
            let len = $y.len() - whole;
            tail[..len].copy_from_slice(&$y[whole..]);
            if !$x.is_empty() {
                other[..len].copy_from_slice(&$x[whole..]);
            }
            let $v = $lanes::load(tail.as_ptr());
            let $w = $lanes::load(other.as_ptr());
            $value.store(tail.as_mut_ptr());
            $y[whole..].copy_from_slice(&tail[..len]);
        }
        let _ = $x;
    }};
}

#[inline(always)]
unsafe fn apply_to<L: Lanes>(op: Pointwise, y: &mut [f32], x: &[f32]) {
    // SAFETY: `L` was detected; vectors lie inside `y`, and inside `x`, which is as long or not looked at.
    unsafe {
        match op {
            Pointwise::Add => each!(L, y, x, |v, w| v.add(w)),
            Pointwise::Mul => each!(L, y, x, |v, w| v.mul(w)),
            Pointwise::Scale(factor) => each!(L, y, x, |v, _w| v.mul(L::splat(factor))),
            Pointwise::SoftCap(cap) => {
                each!(L, y, x, |v, _w| tanh::<L>(v.div(L::splat(cap))).mul(L::splat(cap)));
            }
            Pointwise::Activate(a) => match a {
                Activation::Silu => each!(L, y, x, |v, _w| v.mul(sigmoid(v))),
                Activation::Sigmoid => each!(L, y, x, |v, _w| sigmoid::<L>(v)),
                Activation::Tanh => each!(L, y, x, |v, _w| tanh::<L>(v)),
                Activation::Relu2 => each!(L, y, x, |v, _w| relu2::<L>(v)),
                Activation::GeluTanh => each!(L, y, x, |v, _w| gelu::<L>(v)),
                Activation::Softplus => softplus(y),
                Activation::OssGate => each!(L, y, x, |v, _w| oss_gate::<L>(v)),
                Activation::OssUp => each!(L, y, x, |v, _w| oss_up::<L>(v)),
            },
            Pointwise::Gated(a) => match a {
                Activation::Silu => each!(L, y, x, |v, w| v.mul(sigmoid(v)).mul(w)),
                Activation::Sigmoid => each!(L, y, x, |v, w| sigmoid::<L>(v).mul(w)),
                Activation::Tanh => each!(L, y, x, |v, w| tanh::<L>(v).mul(w)),
                Activation::Relu2 => each!(L, y, x, |v, w| relu2::<L>(v).mul(w)),
                Activation::GeluTanh => each!(L, y, x, |v, w| gelu::<L>(v).mul(w)),
                Activation::Softplus => {
                    softplus(y);
                    each!(L, y, x, |v, w| v.mul(w));
                }
                Activation::OssGate => each!(L, y, x, |v, w| oss_gate::<L>(v).mul(w)),
                Activation::OssUp => each!(L, y, x, |v, w| oss_up::<L>(v).mul(w)),
            },
        }
    }
}

fn softplus(y: &mut [f32]) {
    y.iter_mut().filter(|y| **y <= 20.0).for_each(|y| *y = y.exp().ln_1p());
}

#[inline(always)]
unsafe fn relu2<L: Lanes>(x: L) -> L {
    // SAFETY: as in `apply_to`.
    unsafe {
        let x = x.zero_where(x, 0.0);
        x.mul(x)
    }
}

#[inline(always)]
unsafe fn gelu<L: Lanes>(x: L) -> L {
    // SAFETY: as in `apply_to`.
    unsafe {
        let cube = x.mul(x).mul(x);
        let inner = cube.mul(L::splat(0.044_715)).add(x).mul(L::splat(0.797_884_6));
        x.mul(L::splat(0.5)).mul(tanh(inner).add(L::splat(1.0)))
    }
}

/// The smaller one of `x` and `limit`, or `x` if that is no number.
#[inline(always)]
unsafe fn at_most<L: Lanes>(x: L, limit: f32) -> L {
    // SAFETY: as in `apply_to`.
    unsafe { L::splat(0.0).sub(L::splat(-limit).max(L::splat(0.0).sub(x))) }
}

#[inline(always)]
unsafe fn oss_gate<L: Lanes>(x: L) -> L {
    // SAFETY: as in `apply_to`.
    unsafe {
        let x = at_most(x, 7.0);
        x.mul(sigmoid(x.mul(L::splat(1.702))))
    }
}

#[inline(always)]
unsafe fn oss_up<L: Lanes>(x: L) -> L {
    // SAFETY: as in `apply_to`.
    unsafe { L::splat(-7.0).max(at_most(x, 7.0)).add(L::splat(1.0)) }
}

/// `1 / (1 + exp(-x))`, by way of the exponential of `-|x|`.
#[inline(always)]
unsafe fn sigmoid<L: Lanes>(x: L) -> L {
    // SAFETY: as in `apply_to`.
    unsafe {
        let minus = L::splat(0.0).sub(x);
        let e = L::splat(0.0).sub(x.max(minus)).exp_negative();
        let positive = L::splat(1.0).div(L::splat(1.0).add(e));
        let negative = e.mul(positive);
        // One of the two is 0: the first for `x <= 0`, the second for `-x <= -tiny`.
        positive.zero_where(x, 0.0).add(negative.zero_where(minus, -f32::from_bits(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_testkit::uniform;

    fn exact(op: Pointwise, y: f32, x: f32) -> f64 {
        let (y, x) = (f64::from(y), f64::from(x));
        let activated = |a| match a {
            Activation::Silu => y / (1.0 + (-y).exp()),
            Activation::GeluTanh => 0.5 * y * (1.0 + (0.797_884_560_8 * (y + 0.044715 * y * y * y)).tanh()),
            Activation::Relu2 => y.max(0.0) * y.max(0.0),
            Activation::Sigmoid => 1.0 / (1.0 + (-y).exp()),
            Activation::Softplus => y.exp().ln_1p(),
            Activation::Tanh => y.tanh(),
            Activation::OssGate => y.min(7.0) / (1.0 + (-1.702 * y.min(7.0)).exp()),
            Activation::OssUp => 1.0 + y.clamp(-7.0, 7.0),
        };
        match op {
            Pointwise::Add => y + x,
            Pointwise::Mul => y * x,
            Pointwise::Scale(factor) => y * f64::from(factor),
            Pointwise::Activate(a) => activated(a),
            Pointwise::Gated(a) => activated(a) * x,
            Pointwise::SoftCap(cap) => f64::from(cap) * (y / f64::from(cap)).tanh(),
        }
    }

    fn all() -> Vec<Pointwise> {
        use Activation::*;
        let each = [Silu, GeluTanh, Relu2, Sigmoid, Softplus, Tanh, OssGate, OssUp];
        let mut ops = vec![Pointwise::Add, Pointwise::Mul, Pointwise::Scale(0.3), Pointwise::SoftCap(5.0)];
        ops.extend(each.map(Pointwise::Activate));
        ops.extend(each.map(Pointwise::Gated));
        ops
    }

    #[test]
    fn every_op_is_exact_on_every_isa_and_length() {
        for isa in Isa::available() {
            for op in all() {
                for len in [1, 15, 16, 100] {
                    let before: Vec<f32> = uniform(1, len).iter().map(|x| x * 30.0).collect();
                    let x = uniform(2, len);
                    let mut y = before.clone();
                    apply(isa, op, &mut y, &x);
                    for i in 0..len {
                        let expected = exact(op, before[i], x[i]);
                        let error = (f64::from(y[i]) - expected).abs();
                        assert!(
                            error <= 1e-6 * expected.abs().max(1.0),
                            "{isa} {op:?} {} {}",
                            y[i],
                            expected
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn isas_agree_bit_for_bit_and_cuts_change_nothing() {
        let before: Vec<f32> = uniform(3, 200).iter().map(|x| x * 90.0).collect();
        let x = uniform(4, 200);
        for op in all() {
            let mut whole = before.clone();
            apply(Isa::Scalar, op, &mut whole, &x);
            for isa in Isa::available() {
                let mut cut = before.clone();
                for (y, x) in cut.chunks_mut(7).zip(x.chunks(7)) {
                    apply(isa, op, y, x);
                }
                assert!(whole.iter().zip(&cut).all(|(a, b)| a.to_bits() == b.to_bits()), "{isa} {op:?}");
            }
        }
    }

    #[test]
    fn numbers_that_are_not_finite_stay_visible() {
        for isa in Isa::available() {
            for op in all() {
                let mut y = [f32::NAN; 17];
                apply(isa, op, &mut y, &[1.0; 17]);
                let quiet = op == Pointwise::Activate(Activation::Relu2);
                assert!(quiet || y.iter().all(|y| y.is_nan()), "{isa} {op:?}");
            }
        }
    }
}
