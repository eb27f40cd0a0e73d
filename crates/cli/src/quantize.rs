//! `nibble quantize`: a model in another encoding.

use crate::{
    args::{QuantizeArgs, codecs},
    generate::{interrupted, stoppable},
    terminal,
};
use nibble_api::{
    Error, Kind, MlxOptions, Note, Progress, QuantizeOptions, Summary, Target, TensorReport, quantize_to_mlx,
};
use serde_json::json;
use std::{collections::BTreeMap, ops::ControlFlow, time::Instant};

/// Weights in a unit of the progress bar, whose numbers are then of a readable size.
const UNIT: u64 = 1_000_000;

pub fn run(args: &QuantizeArgs) -> Result<(), Error> {
    let to = match (&args.file_type, &args.to) {
        (Some(name), _) => Target::FileType(name.clone()),
        (None, name) => Target::Encoding(name.clone().unwrap_or_default()),
    };
    let options =
        QuantizeOptions { to, rules: args.rules.clone(), imatrix: args.imatrix.clone(), force: args.force };
    let started = Instant::now();
    let bar = terminal::bar(0, "million weights");
    let mut progress = |now: Progress<'_>| {
        bar.set_length(now.total.div_ceil(UNIT));
        bar.set_position(now.done / UNIT);
        if interrupted() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let written = stoppable(|| match mlx(args)? {
        Some(mlx) => quantize_to_mlx(&args.input, &args.output, mlx, &codecs(), &mut progress),
        None => nibble_api::quantize(&args.input, &args.output, &options, &codecs(), &mut progress),
    });
    bar.finish_and_clear();
    let summary = written?;
    summary.warnings.iter().for_each(terminal::warn);
    if args.stats {
        terminal::say(table(&summary))?;
    }
    if args.json {
        terminal::say(format_args!("{:#}\n", report(&summary)))?;
    }
    lines(&summary).iter().for_each(terminal::note);
    if summary.resumed > 0 {
        terminal::note(format_args!("{} tensors were finished by an earlier run", summary.resumed));
    }
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

/// The settings of `--to mlx`, if it is there.
fn mlx(args: &QuantizeArgs) -> Result<Option<MlxOptions>, Error> {
    let refused = |what: &str| Err(Error::new(Kind::Usage, what));
    if args.to.as_deref() != Some("mlx") {
        return match (args.bits, args.group_size) {
            (None, None) => Ok(None),
            _ => refused(
                "--bits and --group-size: expected `--to mlx` with them, as other encodings have their own",
            ),
        };
    }
    if args.rules.is_some() || args.imatrix.is_some() {
        return refused(
            "--to mlx: expected no --rules and no --imatrix, as MLX rounds all matrices alike and looks at no weights",
        );
    }
    let or = |n: Option<u8>, usual| n.map_or(usual, usize::from);
    Ok(Some(MlxOptions { bits: or(args.bits, 4), group: or(args.group_size, 64) }))
}

/// A line for each tensor, with what its rounding cost.
fn table(summary: &Summary) -> String {
    let width = summary.tensors.iter().map(|t| t.name.len()).max().unwrap_or(0);
    let mut text = format!(
        "{:width$} {:>12} {:8} {:8} {:>10} {:>10} {:>10}\n",
        "tensor", "weights", "from", "to", "rms error", "max error", "cosine"
    );
    for t in &summary.tensors {
        let e = t.errors;
        text += &format!(
            "{:width$} {:>12} {:8} {:8} {:>10.3e} {:>10.3e} {:>10.7}\n",
            t.name, t.weights, t.from, t.to, e.rmse, e.max, e.cosine
        );
    }
    text
}

/// The same for programs.
fn report(summary: &Summary) -> serde_json::Value {
    let tensor = |t: &TensorReport| {
        json!({
            "name": t.name, "weights": t.weights, "from": t.from, "to": t.to, "bytes_before": t.bytes_before,
            "bytes": t.bytes_after, "rms_error": t.errors.rmse, "max_error": t.errors.max, "cosine": t.errors.cosine,
        })
    };
    json!({
        "bytes_before": summary.bytes_before(),
        "bytes": summary.bytes_after(),
        "bits_per_weight": summary.bits_per_weight(),
        "warnings": summary.warnings,
        "tensors": summary.tensors.iter().map(tensor).collect::<Vec<_>>(),
    })
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
        let squares: f64 = tensors.iter().map(|t| t.errors.rmse.powi(2) * t.weights as f64).sum();
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
        Note::Mixed => ", as the type has it",
        Note::Rule => ", by a rule",
        Note::Copied => ", copied",
        Note::Requantized => ", rounded a second time",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_api::Errors;

    fn summary() -> Summary {
        let tensor = |name: &str, to, note, rmse| TensorReport {
            name: name.into(),
            weights: 1024,
            from: "f16",
            to,
            bytes_before: 2048,
            bytes_after: 1088,
            errors: Errors { rmse, max: 2.0 * rmse, cosine: 1.0 - rmse },
            note,
        };
        let tensors = vec![
            tensor("a", "q8_0", Note::None, 0.03),
            tensor("b", "q6_k", Note::Head, 0.1),
            tensor("c", "q8_0", Note::None, 0.04),
        ];
        Summary { tensors, ..Summary::default() }
    }

    #[test]
    fn tensors_that_changed_alike_share_a_line() {
        let lines = lines(&summary());
        assert_eq!(lines.len(), 2);
        assert!(lines[0].ends_with("rms error 1.0e-1, as the output needs more bits"), "{}", lines[0]);
        let both = "2 tensors f16     -> q8_0      4.00 KiB ->   2.12 KiB, rms error 3.5e-2";
        assert_eq!(lines[1].trim_start(), both);
    }

    #[test]
    fn each_tensor_has_a_line_with_its_errors() {
        let table = table(&summary());
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[2], ["b", "1024", "f16", "q6_k", "1.000e-1", "2.000e-1", "0.9000000"]);
        let report = report(&summary());
        assert_eq!(report["tensors"][2]["max_error"], json!(0.08));
        assert_eq!(report["bits_per_weight"], json!(8.5));
    }
}
