//! What a device is, in words.

use std::fmt;

/// A device in words, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// The processor's name.
    pub name: String,
    /// The instruction set or the driver.
    pub instructions: String,
    /// Threads that compute.
    pub threads: usize,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.threads == 1 { "" } else { "s" };
        write!(f, "{} ({}, {} thread{s})", self.name, self.instructions, self.threads)
    }
}
