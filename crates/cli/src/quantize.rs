//! `nibble quantize`: a model in another encoding.

use crate::{
    args::{QuantizeArgs, codecs},
    generate::{interrupted, stoppable},
    terminal,
};
use nibble_api::{Error, Note, Progress, QuantizeOptions, Summary, TensorReport};
use std::{collections::BTreeMap, ops::ControlFlow, time::Instant};

/// Weights in a unit of the progress bar, whose numbers are then of a readable size.
const UNIT: u64 = 1_000_000;

pub fn run(args: &QuantizeArgs) -> Result<(), Error> {
    let options = QuantizeOptions { to: args.to.clone(), imatrix: args.imatrix.clone(), force: args.force };
    let started = Instant::now();
    let bar = terminal::bar(0, "million weights");
    let mut progress = |now: Progress<'_>| {
        bar.set_length(now.total.div_ceil(UNIT));
        bar.set_position(now.done / UNIT);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let written =
        stoppable(|| nibble_api::quantize(&args.input, &args.output, &options, &codecs(), &mut progress));
    bar.finish_and_clear();
    let summary = written?;
    summary.warnings.iter().for_each(terminal::warn);
    lines(&summary).iter().for_each(terminal::note);
    terminal::note(format_args!(
        "{}: {} -> {}, {:.2} bits a weight, in {}",
        args.output.display(),
        terminal::size(summary.bytes_before()),
        terminal::size(summary.bytes_after()),
        summary.bits_per_weight(),
        terminal::time(started.elapsed()),
    ));
    Ok(())
}

/// A line for each kind of change that tensors went through.
fn lines(summary: &Summary) -> Vec<String> {
    let mut kinds: BTreeMap<(&str, &str, &str), Vec<&TensorReport>> = BTreeMap::new();
    for tensor in &summary.tensors {
        kinds.entry((tensor.from, tensor.to, why(tensor.note))).or_default().push(tensor);
    }
    let line = |((from, to, why), tensors): ((&str, &str, &str), Vec<&TensorReport>)| {
        let sum = |of: fn(&TensorReport) -> u64| tensors.iter().map(|t| of(t)).sum::<u64>();
        let (before, after) =
            (terminal::size(sum(|t| t.bytes_before)), terminal::size(sum(|t| t.bytes_after)));
        let squares: f64 = tensors.iter().map(|t| t.rmse.powi(2) * t.weights as f64).sum();
        let rmse = (squares / sum(|t| t.weights).max(1) as f64).sqrt();
        let count = tensors.len();
        format!(
            "{count:>5} tensors {from:<7} -> {to:<7} {before:>10} -> {after:>10}, rms error {rmse:.1e}{why}"
        )
    };
    kinds.into_iter().map(line).collect()
}

fn why(note: Note) -> &'static str {
    match note {
        Note::None => "",
        Note::Fallback => ", as their rows are no whole number of blocks",
        Note::Head => ", as the output needs more bits",
        Note::Copied => ", copied",
        Note::Requantized => ", rounded a second time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_that_changed_alike_share_a_line() {
        let tensor = |name: &str, to, note, rmse| TensorReport {
            name: name.into(),
            weights: 1024,
            from: "f16",
            to,
            bytes_before: 2048,
            bytes_after: 1088,
            rmse,
            note,
        };
        let tensors = vec![
            tensor("a", "q8_0", Note::None, 0.03),
            tensor("b", "q6_k", Note::Head, 0.1),
            tensor("c", "q8_0", Note::None, 0.04),
        ];
        let lines = lines(&Summary { tensors, warnings: vec![] });
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with("rms error 1.0e-1, as the output needs more bits"), "{}", lines[0]);
        let both = "2 tensors f16     -> q8_0      4.00 KiB ->   2.12 KiB, rms error 3.5e-2";
        assert_eq!(lines[1].trim_start(), both);
    }
}
