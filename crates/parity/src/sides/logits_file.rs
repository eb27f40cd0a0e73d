//! A safetensors file with `logits` F32 `[T, V]`, as `nibble logits --out` writes it. Its tokens are in its texts
//! (`tokens`: `1,2,3`), in a tensor `tokens` of integers, or given by the user.

use super::stored::{Stored, StoredPrompt, at, integers, numbers, sha256};
use crate::side::{Identity, Opening, Precision, Prompt, Side, SideEntry, vocabulary};
use nibble_api::{Error, Kind};
use nibble_format::safetensors::SafetensorsFile;
use std::path::Path;

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "a logits file (.safetensors, of `nibble logits --out`)",
    means: |spec| spec.ends_with(".safetensors") && Path::new(spec).is_file(),
    open,
};

fn open(spec: &str, with: &Opening<'_>) -> Result<Box<dyn Side>, Error> {
    let path = Path::new(spec);
    let file = SafetensorsFile::parse(nibble_format::map_file(path)?, path)?;
    let sha256 = sha256(path)?;
    let logits = numbers(&file, "logits")?;
    let &[rows, vocab] = &logits.shape[..] else {
        return Err(at(
            path,
            format!("tensor `logits`: expected shape [tokens, vocabulary], found {:?}", logits.shape),
        ));
    };
    vocabulary(with.model.config.vocab, vocab, spec)?;
    let tokens = tokens(&file, with.tokens)?;
    if tokens.len() != rows {
        return Err(at(
            path,
            format!("tensor `logits`: expected a row for each of {} tokens, found {rows}", tokens.len()),
        ));
    }
    let prompt = StoredPrompt { prompt: Prompt::new("file", tokens), rows: file.raw(logits) };
    let identity = Identity {
        side: "logits file".into(),
        text: format!("file     {spec}, sha256 {sha256}"),
        json: serde_json::json!({ "file": spec, "sha256": sha256 }),
    };
    Ok(Box::new(Stored::new(identity, Precision::Exact, vec![prompt])))
}

fn tokens(file: &SafetensorsFile, given: Option<&[u32]>) -> Result<Vec<u32>, Error> {
    if let Some(given) = given {
        return Ok(given.to_vec());
    }
    if let Some(text) = file.metadata.get("tokens") {
        let parsed: Result<Vec<u32>, _> = text.split(',').map(|id| id.trim().parse()).collect();
        return parsed.map_err(|_| {
            at(&file.path, "text `tokens`: expected ids such as 1,2,3, found other text".into())
        });
    }
    if file.tensors.contains_key("tokens") {
        return integers(file, "tokens");
    }
    let path = file.path.display();
    let what = format!("{path}: expected the tokens of its rows, found none; give them with --tokens 1,2,3");
    Err(Error::new(Kind::Usage, what))
}
