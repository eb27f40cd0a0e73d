//! Keys and values of a model file, whatever its container.

use std::collections::BTreeMap;

/// A value of metadata. Integers of any width are one kind, as writers disagree on widths.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any integer.
    Int(i128),
    /// Any float.
    Float(f64),
    /// `true`, `false`
    Bool(bool),
    /// Text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

/// All of them, by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Keys in order.
    pub values: BTreeMap<String, Value>,
}
