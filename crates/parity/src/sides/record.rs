//! A golden record: a run that was stored, so that later ones can be compared with it without its device or its file.
//!
//! A safetensors file. Texts: `nibble.parity.record` (the version, 1), `identity`, `prompts`, `sketches`, `weights`
//! (JSON). Tensors: `prompt.N.tokens` U32 `[T]` and `prompt.N.logits` F32 `[positions, V]` of each prompt,
//! `sketch.N.sums` and `sketch.N.squares` F64 of each value inside the layers.

use super::{
    device::Device,
    stored::{Stored, StoredPrompt, at, doubles, integers, numbers, sha256},
};
use crate::{
    side::{Identity, Opening, Precision, Prompt, Side, SideEntry, vocabulary},
    trace::{self, Sketch, Trace},
    weights,
};
use nibble_api::{Error, Kind};
use nibble_format::safetensors::{NewTensor, SafetensorsFile, head};
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::{collections::BTreeMap, io, ops::ControlFlow, path::Path};

const MARK: &str = "nibble.parity.record";
const VERSION: &str = "1";

/// Positions of a prompt whose logits are kept, at its end.
const KEPT: usize = 24;

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "a record (.safetensors, of `nibble parity --record`)",
    means: |spec| spec.ends_with(".safetensors") && is_record(Path::new(spec)),
    open,
};

#[derive(Serialize, Deserialize)]
struct StoredIdentity {
    side: String,
    text: String,
    json: serde_json::Value,
    exact: bool,
}

#[derive(Serialize, Deserialize)]
struct StoredRange {
    name: String,
    first: usize,
    end: usize,
    continuation: usize,
}

fn parse(path: &Path) -> Result<SafetensorsFile, Error> {
    Ok(SafetensorsFile::parse(nibble_format::map_file(path)?, path)?)
}

fn is_record(path: &Path) -> bool {
    parse(path).is_ok_and(|file| file.metadata.contains_key(MARK))
}

fn open(spec: &str, with: &Opening<'_>) -> Result<Box<dyn Side>, Error> {
    let path = Path::new(spec);
    let file = parse(path)?;
    let version = &file.metadata[MARK];
    if version != VERSION {
        return Err(at(path, format!("expected a record of version {VERSION}, found version {version}")));
    }
    let ranges: Vec<StoredRange> = text(&file, "prompts")?;
    let prompts: Result<Vec<_>, Error> =
        ranges.into_iter().enumerate().map(|(i, range)| prompt(&file, i, range, with)).collect();
    let sketches: Vec<Sketch> = text(&file, "sketches")?;
    let read = |(i, sketch): (usize, Sketch)| {
        let sums = doubles(&file, &format!("sketch.{i}.sums"))?;
        let squares = doubles(&file, &format!("sketch.{i}.squares"))?;
        if sums.len() != squares.len() {
            return Err(at(
                path,
                format!(
                    "tensor `sketch.{i}.squares`: expected {} numbers, found {}",
                    sums.len(),
                    squares.len()
                ),
            ));
        }
        Ok(Sketch { sums, squares, ..sketch })
    };
    let sketches = sketches.into_iter().enumerate().map(read).collect::<Result<_, Error>>()?;
    let stored: StoredIdentity = text(&file, "identity")?;
    let sha256 = sha256(path)?;
    let identity = Identity {
        side: format!("record of {}", stored.side),
        text: format!("file     {spec}, sha256 {sha256}\n{}", stored.text),
        json: serde_json::json!({ "file": spec, "sha256": sha256, "recorded": stored.json }),
    };
    let precision = if stored.exact { Precision::Exact } else { Precision::Rounded };
    let mut side = Stored::new(identity, precision, prompts?);
    side.trace = Some(Trace { sketches });
    side.prints = Some(text(&file, "weights")?);
    Ok(Box::new(side))
}

/// A JSON text of the file.
fn text<T: DeserializeOwned>(file: &SafetensorsFile, key: &str) -> Result<T, Error> {
    let text = file.metadata.get(key).map_or("", String::as_str);
    serde_json::from_str(text).map_err(|e| at(&file.path, format!("text `{key}`: {e}")))
}

fn prompt(
    file: &SafetensorsFile,
    i: usize,
    range: StoredRange,
    with: &Opening<'_>,
) -> Result<StoredPrompt, Error> {
    let wrong = |what: String| at(&file.path, format!("prompt {i}: {what}"));
    let tokens = integers(file, &format!("prompt.{i}.tokens"))?;
    let logits = numbers(file, &format!("prompt.{i}.logits"))?;
    let StoredRange { name, first, end, continuation } = range;
    if first >= end || end > tokens.len() || continuation >= tokens.len() {
        return Err(wrong(format!(
            "expected positions within its {} tokens, found {first}..{end}",
            tokens.len()
        )));
    }
    let &[rows, vocab] = &logits.shape[..] else {
        return Err(wrong(format!("expected logits [positions, vocabulary], found {:?}", logits.shape)));
    };
    vocabulary(with.model.config.vocab, vocab, &file.path.to_string_lossy())?;
    if rows != end - first {
        return Err(wrong(format!("expected logits of {} positions, found {rows}", end - first)));
    }
    let prompt = Prompt { name, tokens, first, end, continuation };
    Ok(StoredPrompt { prompt, rows: file.raw(logits) })
}

/// Runs `prompts` on `side` and writes the record of it, of the last positions of each prompt. `progress` gets the
/// positions done and those in all.
///
/// # Errors
/// If the side fails, the file cannot be written, or `progress` asks to stop.
pub fn write(
    path: &Path,
    side: &mut Device,
    prompts: Vec<Prompt>,
    progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
) -> Result<Vec<Prompt>, Error> {
    let mut prompts = prompts;
    prompts.iter_mut().for_each(|p| p.first = p.first.max(p.end.saturating_sub(KEPT)));
    let texts = trace::texts(prompts.iter().map(|p| &p.tokens[..p.tokens.len() - p.continuation]));
    let trace = side.trace(&texts)?.unwrap_or_default();
    let vocab = side.model().config.vocab;
    let io = |e: io::Error| Error::new(Kind::Run, format!("{}: cannot be written: {e}", path.display()));
    let head = record_head(side, &prompts, &trace, vocab);
    let total = prompts.iter().map(Prompt::positions).sum();
    nibble_api::replace(path, io, |out| {
        out.write_all(&head).map_err(io)?;
        // Data of eight bytes a number first, so that all of it is aligned.
        for numbers in trace.sketches.iter().flat_map(|s| [&s.sums, &s.squares]) {
            numbers.iter().try_for_each(|x| out.write_all(&x.to_le_bytes())).map_err(io)?;
        }
        let mut done = 0;
        for prompt in &prompts {
            prompt.tokens.iter().try_for_each(|id| out.write_all(&id.to_le_bytes())).map_err(io)?;
            let mut written = Ok(());
            side.rows(prompt, &mut |position, row| {
                if written.is_ok() {
                    written = write_row(&prompt.name, position, row, out, &io);
                }
            })?;
            written?;
            done += prompt.positions();
            if progress(done, total).is_break() {
                return Err(Error::new(
                    Kind::Run,
                    format!("{}: interrupted, nothing was written", path.display()),
                ));
            }
        }
        Ok(())
    })?;
    Ok(prompts)
}

/// Nothing could ever agree with a row that is not finite.
fn write_row(
    prompt: &str,
    position: usize,
    row: &[f32],
    out: &mut dyn io::Write,
    io: &impl Fn(io::Error) -> Error,
) -> Result<(), Error> {
    if let Some(token) = row.iter().position(|x| !x.is_finite()) {
        let found = row[token];
        let what = format!(
            "prompt `{prompt}`, position {position}: token {token}: expected a finite number to keep, found {found}"
        );
        return Err(Error::new(Kind::Run, what));
    }
    row.iter().try_for_each(|x| out.write_all(&x.to_le_bytes())).map_err(io)
}

fn record_head(side: &Device, prompts: &[Prompt], trace: &Trace, vocab: usize) -> Vec<u8> {
    let mut tensors = vec![];
    let mut add = |name: String, dtype, shape: Vec<usize>| tensors.push(NewTensor { name, dtype, shape });
    for (i, sketch) in trace.sketches.iter().enumerate() {
        add(format!("sketch.{i}.sums"), "F64", vec![sketch.sums.len()]);
        add(format!("sketch.{i}.squares"), "F64", vec![sketch.squares.len()]);
    }
    for (i, prompt) in prompts.iter().enumerate() {
        add(format!("prompt.{i}.tokens"), "U32", vec![prompt.tokens.len()]);
        add(format!("prompt.{i}.logits"), "F32", vec![prompt.positions(), vocab]);
    }
    let ranges: Vec<_> = prompts
        .iter()
        .map(|p| StoredRange {
            name: p.name.clone(),
            first: p.first,
            end: p.end,
            continuation: p.continuation,
        })
        .collect();
    let Identity { side: name, text, json } = side.identity().clone();
    let identity = StoredIdentity { side: name, text, json, exact: side.precision() == Precision::Exact };
    let weights: BTreeMap<String, String> = weights::prints(&side.model().checkpoint.tensors);
    let json = |value: Result<String, serde_json::Error>| value.expect("names and numbers are JSON");
    let texts = [
        (MARK, VERSION.to_owned()),
        ("identity", json(serde_json::to_string(&identity))),
        ("prompts", json(serde_json::to_string(&ranges))),
        ("sketches", json(serde_json::to_string(&trace.sketches))),
        ("weights", json(serde_json::to_string(&weights))),
    ];
    head(&tensors, &texts)
}
