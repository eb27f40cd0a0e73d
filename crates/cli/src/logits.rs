//! `nibble logits`: the logits of every position of a prompt.

use crate::{args::LogitsArgs, run::open};
use nibble_api::{Error, Kind, Options};
use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

/// Rows of logits held at once.
const WANTED: usize = 32;

pub fn run(args: &LogitsArgs) -> Result<(), Error> {
    let model = open(Some(&args.model))?;
    let tokens = match (&args.tokens, &args.prompt) {
        (Some(tokens), _) => tokens.clone(),
        (None, Some(text)) => model.encode(text)?,
        (None, None) => vec![],
    };
    if args.out.is_none() && !args.json {
        return Err(Error::new(Kind::Usage, "nothing to do: give --out FILE, --json, or both"));
    }
    let options = args.device.options();
    let context = options.context.or(Some(tokens.len().max(1)));
    let mut engine = model.start(&Options { context, wanted: WANTED, ..options })?;
    let mut file = match &args.out {
        Some(path) => Some((path, create(path, tokens.len(), model.config.vocab)?)),
        None => None,
    };
    let (mut top, mut sums) = (vec![], vec![]);
    let mut written = Ok(());
    engine.score(&tokens, |_, row| {
        if let (Some((_, file)), true) = (&mut file, written.is_ok()) {
            written = row.iter().try_for_each(|x| file.write_all(&x.to_le_bytes()));
        }
        if args.json {
            top.push(largest(row, args.top));
            sums.push(log_sum_exp(row));
        }
    })?;
    if let Some((path, mut file)) = file {
        written.and_then(|()| file.flush()).map_err(|e| unwritable(path, &e))?;
    }
    if args.json {
        println!("{}", serde_json::json!({ "tokens": tokens, "top": top, "logsumexp": sums }));
    }
    Ok(())
}

fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::new(Kind::Run, format!("{}: cannot be written: {e}", path.display()))
}

/// A safetensors file up to the data of its only tensor.
fn create(path: &Path, rows: usize, vocab: usize) -> Result<BufWriter<File>, Error> {
    let end = rows * vocab * 4;
    let header = serde_json::json!({
        "logits": { "dtype": "F32", "shape": [rows, vocab], "data_offsets": [0, end] }
    });
    // The data starts at a multiple of 8, as readers that map it expect.
    let mut header = header.to_string();
    header.extend(std::iter::repeat_n(' ', header.len().next_multiple_of(8) - header.len()));
    let write = || {
        let mut file = BufWriter::new(File::create(path)?);
        file.write_all(&(header.len() as u64).to_le_bytes())?;
        file.write_all(header.as_bytes())?;
        Ok(file)
    };
    write().map_err(|e: std::io::Error| unwritable(path, &e))
}

/// The `n` largest logits with their ids, largest first, the lower id first among equals.
fn largest(row: &[f32], n: usize) -> Vec<(usize, f32)> {
    let mut all: Vec<_> = row.iter().copied().enumerate().collect();
    let order = |a: &(usize, f32), b: &(usize, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
    let n = n.min(all.len());
    if n < all.len() {
        all.select_nth_unstable_by(n, order);
    }
    all.truncate(n);
    all.sort_unstable_by(order);
    all
}

fn log_sum_exp(row: &[f32]) -> f64 {
    let max = row.iter().fold(f64::NEG_INFINITY, |max, &x| max.max(f64::from(x)));
    max + row.iter().map(|&x| (f64::from(x) - max).exp()).sum::<f64>().ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_come_first_and_ties_by_id() {
        assert_eq!(largest(&[1.0, 3.0, 2.0, 3.0], 3), [(1, 3.0), (3, 3.0), (2, 2.0)]);
        assert_eq!(largest(&[1.0], 10), [(0, 1.0)]);
        assert!((log_sum_exp(&[0.0, 0.0]) - 2f64.ln()).abs() < 1e-12);
    }
}
