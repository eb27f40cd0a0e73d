//! `--trace FILE`: where the time goes, as a file and in a few lines.

use crate::{args::TraceArgs, terminal};
use nibble_api::{Error, OpTime, OpenOptions, Options, Trace, Tracer};
use std::{sync::Arc, time::Duration};

/// Lines of the summary.
const SHOWN: usize = 8;

/// A trace that may have been asked for.
#[derive(Clone)]
pub struct Tracing(Option<Arc<Trace>>);

impl Tracing {
    /// Starts the file that was asked for.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn start(args: &TraceArgs) -> Result<Self, Error> {
        Ok(Self(args.trace.as_deref().map(Trace::create).transpose()?))
    }

    fn tracer(&self) -> Option<Arc<dyn Tracer>> {
        self.0.clone().map(|trace| trace as Arc<dyn Tracer>)
    }

    /// `options`, traced.
    pub fn open(&self, options: OpenOptions) -> OpenOptions {
        OpenOptions { tracer: self.tracer(), ..options }
    }

    /// `options`, traced.
    pub fn run(&self, options: Options) -> Options {
        Options { tracer: self.tracer(), ..options }
    }

    /// Keeps the file up to date, between steps.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep_up(&self) -> Result<(), Error> {
        self.0.as_ref().map_or(Ok(()), |trace| trace.keep_up())
    }

    /// Completes the file and says on stderr which ops took the time.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn finish(&self) -> Result<(), Error> {
        let Some(trace) = &self.0 else { return Ok(()) };
        trace.flush()?;
        table(&trace.op_times()).iter().for_each(terminal::note);
        if trace.lost() > 0 {
            let lost = trace.lost();
            terminal::warn(format_args!(
                "the trace is incomplete: {lost} spans came faster than they were kept"
            ));
        }
        Ok(())
    }
}

/// The ops that took longest, with their share of the time of all.
fn table(ops: &[OpTime]) -> Vec<String> {
    let total: Duration = ops.iter().map(|op| op.time).sum();
    let line = |op: &OpTime| {
        let share = 100.0 * op.time.as_secs_f64() / total.as_secs_f64().max(1e-9);
        format!("{share:5.1} %  {:>9}  {:>6} x  {}", terminal::time(op.time), op.count, op.what)
    };
    ops.iter().take(SHOWN).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_shows_shares_of_all_ops() {
        let op = |what: &str, ms, count| OpTime { what: what.into(), time: Duration::from_millis(ms), count };
        let lines = table(&[op("matmul (head)", 30, 3), op("add", 10, 6)]);
        assert_eq!(lines[0], " 75.0 %    30.0 ms       3 x  matmul (head)");
        assert_eq!(lines.len(), 2);
        assert!(table(&[]).is_empty());
    }
}
