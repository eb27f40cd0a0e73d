//! Micro-benchmarks: each is a path such as `cpu/matmul/q4_0/1x2048x8192`, and each figure stands beside the limit of the
//! machine, measured by a bare loop between its own repeats.
#![forbid(unsafe_code)]

mod matmul;
mod timing;

use std::io::{self, Write};

/// What to run and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only benchmarks whose path contains it.
    pub filter: String,
    /// Small sizes and one repeat: to see that everything runs.
    pub tiny: bool,
    /// Threads, for which one instruction set or the best.
    pub threads: Vec<usize>,
    /// The instruction set's name, or the best one.
    pub isa: Option<String>,
}

/// Runs what the filter selects and prints one line for each; returns how many there were.
///
/// # Errors
/// If writing fails, or the instruction set is not to be had.
pub fn run(options: &Options, out: &mut impl Write) -> io::Result<usize> {
    matmul::run(options, out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_runs_tiny() {
        let options = Options { filter: String::new(), tiny: true, threads: vec![1, 2], isa: None };
        let mut out = Vec::new();
        let count = run(&options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(count > nibble_quant::CODECS.len(), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
