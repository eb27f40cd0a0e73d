//! What still counts as agreement.

use crate::{agreement::Agreement, side::Precision, trace::TraceReport};
use nibble_api::{Error, Kind};
use serde::Serialize;

/// Bounds on what two sides may differ by. `docs/parity.md` says what the defaults were chosen from.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Bounds {
    /// The smallest cosine of two rows of logits, at least.
    pub cosine: f64,
    /// The largest difference of two logits, at most.
    pub max_diff: f64,
    /// The mean divergence in nats, at most.
    pub kl: f64,
    /// The share of positions with the same likeliest token, at least.
    pub top1: f64,
    /// How far a column of a value inside the layers may be off, relative to its size.
    pub layers: f64,
}

/// A bound by the name that users type: what it is compared with, and whether that must not be below it.
struct Named {
    name: &'static str,
    field: fn(&mut Bounds) -> &mut f64,
}

static NAMES: &[Named] = &[
    Named { name: "cosine", field: |b| &mut b.cosine },
    Named { name: "max-diff", field: |b| &mut b.max_diff },
    Named { name: "kl", field: |b| &mut b.kl },
    Named { name: "top1", field: |b| &mut b.top1 },
    Named { name: "layers", field: |b| &mut b.layers },
];

impl Bounds {
    /// For sides that both compute with floats.
    pub const EXACT: Self = Self { cosine: 0.999_999, max_diff: 5e-3, kl: 1e-6, top1: 0.995, layers: 2e-5 };

    /// For a side that rounds inputs of products, keys or values.
    pub const ROUNDED: Self = Self { cosine: 0.98, max_diff: 6.0, kl: 0.05, top1: 0.9, layers: 0.25 };

    /// The defaults for sides of which the less exact one has this precision.
    pub fn of(precision: Precision) -> Self {
        match precision {
            Precision::Exact => Self::EXACT,
            Precision::Rounded => Self::ROUNDED,
        }
    }

    /// Sets some: `kl=0.1,top1=0.95`.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a name or a number that is none.
    pub fn set(&mut self, text: &str) -> Result<(), Error> {
        for part in text.split(',') {
            let wrong = || {
                let names: Vec<_> = NAMES.iter().map(|named| named.name).collect();
                let what = format!(
                    "--bounds: expected NAME=NUMBER with a name of {}, found `{part}`",
                    names.join(", ")
                );
                Error::new(Kind::Usage, what)
            };
            let (name, number) = part.split_once('=').ok_or_else(wrong)?;
            let named = NAMES.iter().find(|named| named.name == name.trim()).ok_or_else(wrong)?;
            let number: f64 = number.trim().parse().map_err(|_| wrong())?;
            if number.is_nan() {
                return Err(wrong());
            }
            *(named.field)(self) = number;
        }
        Ok(())
    }

    /// A sentence for each bound that is broken.
    pub fn broken(&self, found: &Agreement, trace: Option<&TraceReport>) -> Vec<String> {
        let mut broken = vec![];
        let mut at_least = |name: &str, found: f64, bound: f64| {
            if found.is_nan() || found < bound {
                broken.push(format!("{name} is {found:.6}, expected at least {bound}"));
            }
        };
        at_least("the smallest cosine", found.cosine_min, self.cosine);
        at_least("top-1 agreement", found.top1(), self.top1);
        let mut at_most = |name: &str, found: f64, bound: f64| {
            if found.is_nan() || found > bound {
                broken.push(format!("{name} is {found:.3e}, expected at most {bound:e}"));
            }
        };
        at_most("the largest difference of logits", found.max_diff, self.max_diff);
        at_most("the mean divergence", found.kl(), self.kl);
        if let Some(parting) = trace.and_then(|trace| trace.first.as_ref()) {
            let place = parting.layer.map_or(String::new(), |layer| format!("layer {layer}: "));
            broken.push(format!(
                "{place}`{}`, column {}, is off by {:.1e} of its size, expected at most {:e}",
                parting.name, parting.column, parting.deviation, self.layers
            ));
        }
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{agreement, side::Form};

    #[test]
    fn bounds_are_set_by_name_and_wrong_ones_refused() {
        let mut bounds = Bounds::EXACT;
        bounds.set("kl=0.5, top1=0.25").unwrap();
        assert_eq!(bounds, Bounds { kl: 0.5, top1: 0.25, ..Bounds::EXACT });
        for wrong in ["kl", "kl=x", "luck=1", "", "kl=nan"] {
            assert!(bounds.set(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_bound_can_be_broken() {
        let mut found = Agreement::default();
        let row = agreement::compare(&[0.0, 1.0, 2.0], &[2.0, 1.0, 0.0], Form::Logits).unwrap();
        found.add(agreement::Place::default(), &row);
        assert_eq!(Bounds::EXACT.broken(&found, None).len(), 4);
        let loose = Bounds { cosine: -1.0, max_diff: 9.0, kl: 9.0, top1: 0.0, layers: 1.0 };
        assert_eq!(loose.broken(&found, None), [""; 0]);
        let parting =
            crate::trace::Parting { name: "layer.3".into(), layer: Some(3), column: 5, deviation: 2.0 };
        let trace = TraceReport { values: 9, most: None, first: Some(parting) };
        assert!(loose.broken(&found, Some(&trace))[0].starts_with("layer 3: `layer.3`, column 5"));
    }
}
