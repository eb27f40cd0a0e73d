//! What a plan reserves, by kind.

/// Bytes that a plan holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Weights read in place from the map of their file: pages that the system may drop and read again.
    pub mapped_weights: u64,
    /// Weights held in memory of our own.
    pub weights: u64,
    /// The bank of keys and values.
    pub kv: u64,
    /// Recurrent state of all slots.
    pub state: u64,
    /// Values between ops, and scratch.
    pub activations: u64,
}

impl Memory {
    /// Bytes that are ours alone: everything but mapped weights.
    pub fn own(&self) -> u64 {
        self.weights + self.kv + self.state + self.activations
    }
}
