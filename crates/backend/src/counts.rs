//! What steps ask of a device.

/// What a plan's steps asked of its device since the plan was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps.
    pub steps: u64,
    /// Calls of kernels.
    pub calls: u64,
    /// Times that work was handed over.
    pub submissions: u64,
    /// Buffers made on the device, for this plan or another.
    pub buffers: u64,
}

impl std::ops::Sub for Counts {
    type Output = Self;

    /// What came in between.
    fn sub(self, earlier: Self) -> Self {
        Self {
            steps: self.steps - earlier.steps,
            calls: self.calls - earlier.calls,
            submissions: self.submissions - earlier.submissions,
            buffers: self.buffers - earlier.buffers,
        }
    }
}
