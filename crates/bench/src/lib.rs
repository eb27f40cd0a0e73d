//! Micro-benchmarks: each is a path such as `cpu/matmul/q4_0/1x2048x8192`, and each figure stands beside the limit of the
//! machine, measured by a bare loop between its own repeats.
#![forbid(unsafe_code)]

mod attention;
mod matmul;
mod report;
mod round;
mod timing;

use nibble_backend_cpu::kernels::Isa;
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
    /// The instruction set's name, `all`, or the best one.
    pub isa: Option<String>,
}

/// Runs what the filter selects and prints one line for each; returns how many there were.
///
/// # Errors
/// If writing fails, or the instruction set is not to be had.
pub fn run(options: &Options, out: &mut impl Write) -> io::Result<usize> {
    let isas = match options.isa.as_deref() {
        None => vec![Isa::detect()],
        Some("all") => Isa::available(),
        Some(name) => match Isa::by_name(name) {
            Some(isa) => vec![isa],
            None => return Err(io::Error::other(format!("{name}: not on this machine"))),
        },
    };
    let isas = &isas[..];
    Ok(matmul::run(options, isas, out)?
        + attention::run(options, isas, out)?
        + round::run(options, isas, out)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_benchmark_runs_tiny() {
        let options =
            Options { filter: String::new(), tiny: true, threads: vec![1, 2], isa: Some("all".into()) };
        let mut out = Vec::new();
        let count = run(&options, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(count > Isa::available().len() * nibble_quant::CODECS.len(), "{text}");
        assert!(!text.contains("NaN"), "{text}");
    }
}
