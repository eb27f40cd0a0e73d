//! What a device can refuse.

use nibble_graph::Label;
use thiserror::Error;

/// Why a graph cannot be compiled or a step cannot run.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum Error {
    /// An op or a weight that this device does not run.
    #[error("{device} cannot run {what}")]
    Unsupported {
        /// The device.
        device: String,
        /// The op, the weight, the setting.
        what: String,
    },
    /// It does not fit.
    #[error("{what} needs {needed} bytes, but {available} are available")]
    Memory {
        /// What was to be reserved.
        what: String,
        /// Bytes needed.
        needed: u64,
        /// Bytes there are; 0 if the system refused without a number.
        available: u64,
    },
    /// A step that breaks a rule.
    #[error("step refused: {what}: expected {expected}, found {found}")]
    Step {
        /// Which rule.
        what: &'static str,
        /// What it asks for.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A number that is not finite, in a plan with [`crate::Limits::check_finite`].
    #[error("{what}: expected finite numbers, found {found} in row {row}, column {column}")]
    NotFinite {
        /// The op and its layer.
        what: String,
        /// Row of the step.
        row: usize,
        /// Column of the value.
        column: usize,
        /// NaN, or an infinity.
        found: f32,
    },
    /// A number that another device does not agree with.
    #[error("{what}: expected {expected} within the bound, found {found} in row {row}, column {column}")]
    Differs {
        /// The op and its layer.
        what: String,
        /// Row of the step.
        row: usize,
        /// Column of the value.
        column: usize,
        /// What the other device has.
        expected: f32,
        /// What this device has.
        found: f32,
    },
    /// The device itself failed.
    #[error("{device} failed: {what}")]
    Device {
        /// The device.
        device: String,
        /// What it said.
        what: String,
    },
}

impl Error {
    /// [`Error::NotFinite`] for the first number that is not, if there is one among `values`, rows of `width`.
    pub fn not_finite(what: &Label, values: &[f32], width: usize) -> Result<(), Self> {
        let Some(at) = values.iter().position(|x| !x.is_finite()) else { return Ok(()) };
        let (row, column) = (at / width, at % width);
        Err(Self::NotFinite { what: what.to_string(), row, column, found: values[at] })
    }
}
