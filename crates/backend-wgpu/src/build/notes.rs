//! What calls leave for those behind them.

use crate::{
    kernels::{chain::Link, gemv::Choice},
    tape::Slot,
};
use nibble_graph::{Route, Value};

/// What follows a product: links and their buffers, the output and its width.
pub type End = (Vec<Link>, Vec<Slot>, Slot, usize);

/// A form of a product's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Held {
    /// Eight bits, for few rows.
    CodesFew,
    /// Eight bits, for many rows.
    CodesMany,
    /// Half precision, for many rows.
    Halves,
}

/// Where a result goes rounded.
#[derive(Clone, Copy, Debug)]
pub struct Rounding {
    /// Codes and scales.
    pub held: [Slot; 2],
    /// Weight of a norm behind it, and where sums of squares go.
    pub norm: Option<[Slot; 2]>,
}

/// A norm whose scale is left to the products behind it, for few rows.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// Sums of squares.
    pub squares: Slot,
    /// Epsilon.
    pub eps: f32,
    /// What is to be normed, and the norm's weight.
    pub input: [Slot; 2],
}

/// A choice of experts that is left to the first product of them, for few rows.
#[derive(Clone, Copy, Debug)]
pub struct Choosing {
    /// How.
    pub route: Route,
    /// Among how many.
    pub experts: usize,
    /// The logits.
    pub logits: Slot,
    /// What is added to them for the choice.
    pub bias: Option<Slot>,
}

/// A weighted sum of experts that their last product makes itself, for few rows.
#[derive(Clone, Debug)]
pub struct Sum {
    /// All experts of a row.
    pub choice: Choice,
    /// Their biases.
    pub bias: Option<Slot>,
    /// What follows, and the value that it makes.
    pub end: End,
    /// That value.
    pub last: Value,
    /// Where it goes rounded.
    pub round: Option<Rounding>,
}
