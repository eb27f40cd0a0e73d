//! Whether two sides compute with the same weights.

use nibble_api::Encoded;
use serde::Serialize;
use std::collections::BTreeMap;

/// A side's weights, or what it knows of them.
pub enum Weights<'a> {
    /// The weights themselves.
    Tensors(&'a BTreeMap<String, Encoded>),
    /// What `prints` said of them.
    Prints(&'a BTreeMap<String, String>),
}

/// How the weights of two sides compare.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WeightReport {
    /// Weights that both have in the same encoding and shape.
    pub compared: usize,
    /// Of these, the names of those whose bytes differ.
    pub differ: Vec<String>,
    /// Weights that only one side has, or that they have in other encodings or shapes.
    pub incomparable: usize,
}

/// The fingerprint of each weight: encoding, shape and the BLAKE3 hash of its bytes.
pub fn prints(tensors: &BTreeMap<String, Encoded>) -> BTreeMap<String, String> {
    tensors.iter().map(|(name, tensor)| (name.clone(), print(tensor))).collect()
}

fn print(tensor: &Encoded) -> String {
    let mut hash = blake3::Hasher::new();
    tensor.parts().iter().for_each(|part| {
        hash.update(part);
    });
    format!("{} {}", form(tensor), hash.finalize())
}

/// Encoding and shape.
fn form(tensor: &Encoded) -> String {
    let dims: Vec<_> = tensor.shape().dims().iter().map(ToString::to_string).collect();
    format!("{} {}", tensor.name(), dims.join("x"))
}

/// The part of a fingerprint before the hash.
fn form_of(print: &str) -> &str {
    print.rsplit_once(' ').map_or(print, |(form, _)| form)
}

impl Weights<'_> {
    /// Compares the weights of two sides.
    pub fn compare(&self, other: &Weights<'_>) -> WeightReport {
        match (self, other) {
            (Weights::Tensors(a), Weights::Tensors(b)) => {
                compare(a, b, |a, b| form(a) == form(b), |a, b| a.parts() == b.parts())
            }
            (a, b) => compare(&a.prints(), &b.prints(), |a, b| form_of(a) == form_of(b), |a, b| a == b),
        }
    }

    fn prints(&self) -> BTreeMap<String, String> {
        match self {
            Weights::Tensors(tensors) => prints(tensors),
            Weights::Prints(prints) => (*prints).clone(),
        }
    }
}

fn compare<T>(
    a: &BTreeMap<String, T>,
    b: &BTreeMap<String, T>,
    alike: impl Fn(&T, &T) -> bool,
    same: impl Fn(&T, &T) -> bool,
) -> WeightReport {
    let incomparable = b.keys().filter(|name| !a.contains_key(*name)).count();
    let mut report = WeightReport { incomparable, ..WeightReport::default() };
    for (name, a) in a {
        match b.get(name) {
            Some(b) if alike(a, b) => {
                report.compared += 1;
                if !same(a, b) {
                    report.differ.push(name.clone());
                }
            }
            _ => report.incomparable += 1,
        }
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_api::Model;

    #[test]
    fn weights_and_their_fingerprints_compare_alike() {
        let model = Model::builtin().unwrap();
        let tensors = &model.checkpoint.tensors;
        let prints = prints(tensors);
        let same = Weights::Tensors(tensors).compare(&Weights::Tensors(tensors));
        assert_eq!((same.compared, same.differ.len(), same.incomparable), (tensors.len(), 0, 0));
        assert_eq!(Weights::Tensors(tensors).compare(&Weights::Prints(&prints)), same);
        let mut wrong = prints.clone();
        let first = wrong.keys().next().unwrap().clone();
        wrong.get_mut(&first).unwrap().push('0');
        let found = Weights::Tensors(tensors).compare(&Weights::Prints(&wrong));
        assert_eq!(found.differ, std::slice::from_ref(&first));
        wrong.insert(first, "f32 7 00".into());
        wrong.remove(prints.keys().last().unwrap());
        let found = Weights::Prints(&wrong).compare(&Weights::Prints(&prints));
        assert_eq!((found.differ.len(), found.incomparable), (0, 2));
    }
}
