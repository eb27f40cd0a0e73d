//! `tokenizer.json` -> the `tokenizer.ggml.*` keys, for byte-level BPE with a pre-tokenizer that GGUF has a name for.

use crate::{Error, Kind};
use nibble_format::{Checkpoint, TokenizerSource, gguf::Entry};
use nibble_tokenizer::{EncodeOptions, PRETOKENIZERS, Pretokenizer, Rule, Tokenizer};
use serde_json::Value as Json;

/// Token types of GGUF.
const NORMAL: i64 = 1;
const CONTROL: i64 = 3;
const USER_DEFINED: i64 = 4;
const UNUSED: i64 = 5;

/// How `tokenizer.json` splits text into words.
#[derive(Default)]
struct Words {
    rules: Vec<String>,
    byte_level: bool,
    space_prefix: bool,
}

/// The keys of a checkpoint's tokenizer and its chat template; `None` if it has no tokenizer. `embed_rows`: the tokens
/// that the model has numbers for, which may be more than the tokenizer knows.
///
/// # Errors
/// If the tokenizer is of a kind that GGUF files cannot hold, or none that is recognized.
pub(super) fn entries(checkpoint: &Checkpoint, embed_rows: usize) -> Result<Option<Vec<Entry>>, Error> {
    let TokenizerSource::Json { tokenizer: json, config } = &checkpoint.tokenizer else { return Ok(None) };
    let tokenizer = Tokenizer::from_json(json, config.as_deref())?; // refuses what is malformed
    let file: Json = serde_json::from_slice(json).map_err(|e| refuse(format!("not JSON: {e}")))?;
    let words = words(&file)?;
    let pre = pretokenizer(&file, &words)?;
    let (tokens, types) = tokens(&file, embed_rows)?;
    let mut entries = vec![
        Entry::new("tokenizer.ggml.model", "gpt2"),
        Entry::new("tokenizer.ggml.pre", pre.names[0]),
        Entry::new("tokenizer.ggml.tokens", tokens),
        Entry::new("tokenizer.ggml.token_type", types),
        Entry::new("tokenizer.ggml.merges", merges(&file)?),
    ];
    entries.extend(ids(checkpoint, &tokenizer)?);
    if words.space_prefix {
        entries.push(Entry::new("tokenizer.ggml.add_space_prefix", true));
    }
    if let Some(template) = &checkpoint.chat_template {
        entries.push(Entry::new("tokenizer.chat_template", template.as_str()));
    }
    Ok(Some(entries))
}

fn refuse(what: impl Into<String>) -> Error {
    Error::new(Kind::Load, format!("tokenizer.json: {}", what.into()))
}

/// Named tokens: what the tokenizer's files say, else what the model's say.
fn ids(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<Entry>, Error> {
    let m = &checkpoint.metadata;
    let mut entries = vec![];
    for (name, own, model_first) in [
        ("bos", tokenizer.bos(), false),
        ("eos", tokenizer.eos(), true), // the model's list says where an answer ends
        ("padding", tokenizer.pad(), false),
    ] {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let given = m.find_int::<u32>(&key)?;
        let id = if model_first { given.or(own) } else { own.or(given) };
        entries.extend(id.map(|id| Entry::new(key, id)));
    }
    if let Some(ends) = m.find_ints("tokenizer.ggml.eos_token_ids")?.filter(|ends| ends.len() > 1) {
        entries.push(Entry::new("tokenizer.ggml.eos_token_ids", ends.to_vec()));
    }
    let around = tokenizer.encode("", EncodeOptions::PROMPT);
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    let rest = &around[usize::from(bos.is_some())..];
    let eos = tokenizer.eos().filter(|&eos| rest == [eos]);
    if !rest.is_empty() && eos.is_none() {
        return Err(refuse(format!("expected only BOS and EOS around a text, found tokens {around:?}")));
    }
    entries.push(Entry::new("tokenizer.ggml.add_bos_token", bos.is_some()));
    if eos.is_some() {
        entries.push(Entry::new("tokenizer.ggml.add_eos_token", true));
    }
    Ok(entries)
}

fn words(file: &Json) -> Result<Words, Error> {
    let normalizer = &file["normalizer"];
    // NFC cannot be said in a GGUF file, but its readers do without it, and most text is composed already.
    if !(normalizer.is_null() || normalizer["type"] == "NFC") {
        let found = &normalizer["type"];
        return Err(refuse(format!(
            "normalizer: expected none or NFC, which GGUF files imply, found {found}"
        )));
    }
    if file["model"]["type"].as_str().unwrap_or("BPE") != "BPE" {
        return Err(refuse(format!("model: expected byte-level BPE, found {}", file["model"]["type"])));
    }
    let mut words = Words::default();
    push(&file["pre_tokenizer"], &mut words)?;
    match words.byte_level {
        true => Ok(words),
        false => Err(refuse(
            "pre_tokenizer: expected byte-level BPE, found another kind; start from a GGUF file of the model",
        )),
    }
}

fn push(step: &Json, words: &mut Words) -> Result<(), Error> {
    let flag = |key: &str, default: bool| step[key].as_bool().unwrap_or(default);
    match step["type"].as_str() {
        None if step.is_null() => {}
        Some("Sequence") => {
            let steps = step["pretokenizers"].as_array().map_or(&[][..], Vec::as_slice);
            return steps.iter().try_for_each(|step| push(step, words));
        }
        Some("ByteLevel") => {
            words.byte_level = true;
            words.space_prefix |= flag("add_prefix_space", true);
            if flag("use_regex", true) {
                words.rules.extend(rules(named("gpt-2")).map(str::to_owned));
            }
        }
        Some("Digits") => {
            words.rules.push(if flag("individual_digits", false) { r"\p{N}" } else { r"\p{N}+" }.into());
        }
        // Patterns match all of a text, so keeping the matches and dropping the rest is the same as isolating them.
        Some("Split") if step["behavior"] == if flag("invert", false) { "Removed" } else { "Isolated" } => {
            match step["pattern"]["Regex"].as_str() {
                Some(pattern) => words.rules.push(pattern.into()),
                None => {
                    return Err(refuse(format!(
                        "pre_tokenizer: expected a pattern, found {}",
                        step["pattern"]
                    )));
                }
            }
        }
        _ => {
            return Err(refuse(format!(
                "pre_tokenizer: GGUF files have no name for the step {}",
                step["type"]
            )));
        }
    }
    Ok(())
}

/// The pre-tokenizer that GGUF files call by name and that splits as `words` does.
fn pretokenizer(file: &Json, words: &Words) -> Result<&'static Pretokenizer, Error> {
    let whole_words = file["model"]["ignore_merges"].as_bool().unwrap_or(false);
    let is = |pre: &&Pretokenizer| {
        pre.ignore_merges == whole_words && rules(pre).eq(words.rules.iter().map(String::as_str))
    };
    PRETOKENIZERS.iter().find(is).ok_or_else(|| {
        let found = words.rules.join(" ; ");
        refuse(format!(
            "pre_tokenizer: its patterns ({found:.120}) are none that GGUF files have a name for; start from a GGUF file \
             of the model"
        ))
    })
}

fn named(name: &str) -> &'static Pretokenizer {
    PRETOKENIZERS.iter().find(|pre| pre.names.contains(&name)).expect("a pre-tokenizer of the table")
}

/// The patterns of a pre-tokenizer; one that counts digits from the right has none that could be written here.
fn rules(pre: &Pretokenizer) -> impl Iterator<Item = &'static str> {
    pre.rules.iter().map(|rule| match rule {
        Rule::Isolate(pattern) => *pattern,
        Rule::Thousands { .. } => "",
    })
}

/// Text and type of each id.
fn tokens(file: &Json, embed_rows: usize) -> Result<(Vec<String>, Vec<i64>), Error> {
    let vocab =
        file["model"]["vocab"].as_object().ok_or_else(|| refuse("model.vocab: expected an object"))?;
    let mut known = vec![];
    for (text, id) in vocab {
        known.push((id.as_u64(), text.as_str(), NORMAL));
    }
    for token in file["added_tokens"].as_array().map_or(&[][..], Vec::as_slice) {
        let kind = if token["special"] == true { CONTROL } else { USER_DEFINED };
        known.push((token["id"].as_u64(), token["content"].as_str().unwrap_or_default(), kind));
    }
    // Ids were checked when the tokenizer was made: few are missing, and none is huge.
    let len = known.iter().filter_map(|(id, ..)| *id).map(|id| id as usize + 1).max().unwrap_or(0);
    let len = len.max(embed_rows);
    let mut tokens: Vec<String> = (0..len).map(|id| format!("[PAD{id}]")).collect();
    let mut types = vec![UNUSED; len];
    for (id, text, kind) in known {
        let id = id.ok_or_else(|| refuse(format!("token {text:?}: expected a number as its id")))? as usize;
        text.clone_into(&mut tokens[id]);
        types[id] = kind;
    }
    Ok((tokens, types))
}

/// `left right`, in order.
fn merges(file: &Json) -> Result<Vec<String>, Error> {
    let merges = file["model"]["merges"].as_array().map_or(&[][..], Vec::as_slice);
    let merge = |merge: &Json| match merge {
        Json::String(text) => Some(text.clone()),
        Json::Array(pair) => Some(format!("{} {}", pair.first()?.as_str()?, pair.get(1)?.as_str()?)),
        _ => None,
    };
    let merges: Option<Vec<String>> = merges.iter().map(merge).collect();
    merges.ok_or_else(|| refuse("model.merges: expected texts or pairs of texts"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn name(file: &Json) -> Result<&'static str, String> {
        let pre = words(file).and_then(|words| pretokenizer(file, &words));
        pre.map(|pre| pre.names[0]).map_err(|e| e.to_string())
    }

    #[test]
    fn pretokenizers_are_known_by_their_patterns() {
        for pre in PRETOKENIZERS {
            if pre.rules.iter().any(|rule| matches!(rule, Rule::Thousands { .. })) {
                continue;
            }
            let split = |pattern: &str| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated"});
            let mut steps: Vec<Json> = rules(pre).map(split).collect();
            steps.push(json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}));
            let file = json!({
                "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
                "model": {"type": "BPE", "ignore_merges": pre.ignore_merges},
            });
            // Two names may stand for the same patterns.
            let found = named(name(&file).unwrap());
            assert!(
                rules(found).eq(rules(pre)) && found.ignore_merges == pre.ignore_merges,
                "{:?}",
                pre.names
            );
        }
    }

    #[test]
    fn short_forms_of_patterns_count() {
        let digits = json!({"type": "Digits", "individual_digits": true});
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true});
        let file = |steps: &[&Json]| json!({"pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "model": {"type": "BPE"}});
        assert_eq!(name(&file(&[&bytes])), Ok("gpt-2"));
        assert_eq!(named(name(&file(&[&digits, &bytes])).unwrap()).names, named("smollm").names);
    }

    #[test]
    fn a_tokenizer_that_gguf_cannot_name_is_refused() {
        let sentencepiece = json!({"normalizer": {"type": "Prepend"}, "model": {"type": "BPE"}});
        assert!(name(&sentencepiece).unwrap_err().contains("expected none or NFC"));
        let no_bytes = json!({"pre_tokenizer": null, "model": {"type": "BPE"}});
        assert!(name(&no_bytes).unwrap_err().contains("expected byte-level BPE"));
        let unknown = json!({
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": "[aeiou]"}, "behavior": "Isolated"},
                {"type": "ByteLevel", "use_regex": false},
            ]},
            "model": {"type": "BPE"},
        });
        assert!(name(&unknown).unwrap_err().contains("[aeiou]"));
    }
}
