//! What a device can do at most, shown by bare loops.

/// A kind of numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbers {
    /// 8-bit integers, summed in 32 bits (16 where the instruction set has nothing wider).
    Int8,
    /// 32-bit floats.
    F32,
}

/// Bare loops on a whole device. They keep no time: whoever holds a clock beside them gets the device's limits.
pub trait Ceiling {
    /// Reads memory that no cache holds, once and with all that the device has; returns the bytes read.
    fn read(&mut self) -> u64;

    /// Multiplies and adds in registers for about a millisecond; returns the products, or `None` where no such loop is
    /// written for the device.
    fn multiply(&mut self, numbers: Numbers) -> Option<u64>;
}
