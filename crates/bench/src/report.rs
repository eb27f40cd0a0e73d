//! What is measured and how it is printed.

use super::timing::{best, median};
use std::time::Instant;

/// Work and its limits, in turns.
pub struct Report {
    /// Seconds that the work took.
    times: Vec<f64>,
    /// Seconds that reading as many bytes took.
    reads: Vec<f64>,
    /// Multiplications a second at most; empty where no such limit is known.
    peaks: Vec<f64>,
}

impl Report {
    /// Runs `work`, `read` and `multiply` in turns for about a second, or once if `tiny`. The first two take the number
    /// of the turn and return seconds; the last takes a number of rounds and returns products a second.
    pub fn measure(
        tiny: bool,
        mut work: impl FnMut(usize) -> f64,
        mut read: impl FnMut(usize) -> f64,
        multiply: impl Fn(usize) -> Option<f64>,
    ) -> Self {
        let rounds = if tiny { 1000 } else { 100_000 };
        let mut report = Self { times: Vec::new(), reads: Vec::new(), peaks: Vec::new() };
        let start = Instant::now();
        while report.times.is_empty()
            || !tiny && (report.times.len() < 5 || start.elapsed().as_secs_f64() < 1.0)
        {
            let turn = report.times.len();
            report.times.push(work(turn));
            report.reads.push(read(turn));
            report.peaks.extend(multiply(rounds));
        }
        report
    }

    /// One line: the best and the median speed beside the limit. Work that reads `bytes` from memory is measured by
    /// them, other work by its products.
    pub fn line(&self, bytes: Option<usize>, products: usize) -> String {
        let speed = |work: usize, unit: &str| {
            let work = work as f64 / 1e9;
            format!("{:7.2} {unit} (median {:.2})", work / best(&self.times), work / median(&self.times))
        };
        let mut text = String::new();
        if let Some(bytes) = bytes {
            let share = 100.0 * best(&self.reads) / best(&self.times);
            let limit = bytes as f64 / 1e9 / best(&self.reads);
            text = format!("{}, {share:3.0} % of {limit:.1}   ", speed(bytes, "GB/s"));
        }
        text += &speed(products, "GMAC/s");
        let peak = self.peaks.iter().copied().fold(0.0, f64::max);
        if bytes.is_none() && peak > 0.0 {
            let share = 100.0 * products as f64 / best(&self.times) / peak;
            text += &format!(", {share:3.0} % of {:.1}", peak / 1e9);
        }
        text
    }
}
