//! A tokenizer from a `tokenizer.json`, the format of the `tokenizers` library, and its `tokenizer_config.json`.

mod decoder;
mod file;
mod post;
mod pre;

use std::sync::Arc;

use crate::added::{Added, AddedToken};
use crate::bpe::{Bpe, BpeOptions};
use crate::end::end_tokens;
use crate::error::{Error, Problem, Result};
use crate::lookup::{Lookup, glue};
use crate::normalize::normalize;
use crate::split::Step;
use crate::tokenizer::{Model, Named, Tokenizer};
use crate::unigram::Unigram;
use crate::vocab::TokenType;
use crate::wordpiece::{LONGEST_WORD, WordPiece};
use file::{AddedJson, Config, File, ModelJson, VocabJson};

/// The longest words that WordPiece may be asked to cover: its time is quadratic in them.
const WORD_LIMIT: usize = 1000;

/// The most normalizing and splitting steps; real files have up to 10.
const STEP_LIMIT: usize = 32;

/// The most that replacing may lengthen a text; real files write a space as 3 bytes.
const GROWTH_LIMIT: usize = 64;

impl Tokenizer {
    /// Reads a `tokenizer.json`; `config` is the `tokenizer_config.json` beside it, which names BOS, EOS and padding.
    ///
    /// # Errors
    /// Malformed JSON, parts that are not supported (by name), ids far beyond the number of tokens, merges of tokens
    /// that do not exist, patterns that cannot run in linear time.
    pub fn from_json(json: &[u8], config: Option<&[u8]>) -> Result<Self> {
        let file: File = serde_json::from_slice(json).map_err(|e| Problem::Json(e).at("tokenizer.json"))?;
        let config: Config = match config {
            Some(bytes) => {
                serde_json::from_slice(bytes).map_err(|e| Problem::Json(e).at("tokenizer_config.json"))?
            }
            None => Config::default(),
        };
        build(file, &config)
    }
}

fn build(mut file: File, config: &Config) -> Result<Tokenizer> {
    let mut scores = Vec::new();
    let tokens = tokens(&mut file.model.vocab, &file.added_tokens, &mut scores)?;
    let all = Lookup::of_all(&tokens);
    let types = types(&tokens, &file.added_tokens);
    let kind = |id: usize| types[id];

    let mut words = pre::compile(file.pre_tokenizer.as_ref())?;
    if !words.byte_level && file.model.kind() == "BPE" {
        words.steps.extend(glue(&tokens).map(|glue| Step::Marks { glue }));
    }
    let normalizers = pre::normalizers(file.normalizer.as_ref())?;
    let (raw, normalized) = added_tokens(&file.added_tokens, |text| normalize(&normalizers, text));
    let around = post::around(file.post_processor.as_ref(), config, &all, tokens.len())?;
    let named = named(config, &all, &tokens, kind, around.0.first().copied())?;
    let unk = unknown(&file.model, &all)?;
    Ok(Tokenizer {
        pieces: Arc::new(decoder::pieces(file.decoder.as_ref(), &tokens, kind)?),
        added: Added::new(raw)?,
        added_after: Added::new(normalized)?,
        normalizers,
        spaces: words.spaces,
        model: model(file.model, &tokens, &all, scores, kind, words.byte_level, unk)?,
        steps: words.steps,
        around,
        named: Named { unk, ..named },
        all,
    })
}

/// The text of each id; ids that the file leaves out have an empty one.
fn tokens(vocab: &mut VocabJson, added: &[AddedJson], scores: &mut Vec<f64>) -> Result<Vec<String>> {
    let mut entries = match vocab {
        VocabJson::Ids(ids) => std::mem::take(ids),
        VocabJson::Scores(list) => {
            let list = std::mem::take(list);
            *scores = list.iter().map(|(_, score)| *score).collect();
            list.into_iter().zip(0u32..).map(|((token, _), id)| (token, id)).collect()
        }
    };
    entries.extend(added.iter().map(|token| (token.content.clone(), token.id)));
    // Real files have few holes; a lone huge id must not make the table huge.
    let limit = entries.len() * 2 + 0x1_0000;
    let len = entries.iter().map(|(_, id)| *id as usize + 1).max().unwrap_or(0);
    if len > limit {
        return Err(
            Problem::PastVocabulary { id: len as u64 - 1, vocab: entries.len() }.at("tokenizer.json: ids")
        );
    }
    if len == 0 {
        return Err(
            Problem::Missing("a tokenizer needs at least one token").at("tokenizer.json: model.vocab")
        );
    }
    let mut tokens = vec![String::new(); len];
    for (token, id) in entries {
        let place = &mut tokens[id as usize];
        if !place.is_empty() && *place != token {
            return Err(Problem::Duplicate(token).at("tokenizer.json: ids"));
        }
        *place = token;
    }
    if !scores.is_empty() {
        scores.resize(len, f64::NEG_INFINITY);
    }
    Ok(tokens)
}

fn types(tokens: &[String], added: &[AddedJson]) -> Vec<TokenType> {
    let mut types = vec![TokenType::Normal; tokens.len()];
    for token in added {
        let kind = if token.special { TokenType::Control } else { TokenType::UserDefined };
        types[token.id as usize] = kind;
    }
    types
}

/// Tokens to find in the text as it is, and tokens to find after normalizing, with their own text normalized.
fn added_tokens(
    added: &[AddedJson],
    normalize: impl Fn(&str) -> String,
) -> (Vec<AddedToken>, Vec<AddedToken>) {
    let token = |t: &AddedJson| AddedToken {
        id: t.id,
        text: if t.normalized { normalize(&t.content) } else { t.content.clone() },
        special: t.special,
        single_word: t.single_word,
        lstrip: t.lstrip,
        rstrip: t.rstrip,
    };
    let (normalized, raw): (Vec<_>, Vec<_>) = added.iter().partition(|t| t.normalized);
    (raw.into_iter().map(token).collect(), normalized.into_iter().map(token).collect())
}

fn named(
    config: &Config,
    all: &Lookup,
    tokens: &[String],
    kind: impl Fn(usize) -> TokenType,
    first: Option<u32>,
) -> Result<Named> {
    let bos = config.id(&config.bos_token, "bos_token", all)?;
    let eos = config.id(&config.eos_token, "eos_token", all)?;
    let pad = config.id(&config.pad_token, "pad_token", all)?;
    Ok(Named { bos: bos.or(first), eos, pad, unk: None, end: end_tokens(tokens, kind, eos.into_iter()) })
}

fn unknown(model: &ModelJson, all: &Lookup) -> Result<Option<u32>> {
    let place = || "tokenizer.json: model.unk_token".to_owned();
    match (&model.unk_token, model.unk_id) {
        (Some(token), _) => match all.get(token) {
            Some(id) => Ok(Some(id)),
            None => Err(Problem::Unknown { found: token.clone(), known: "tokens of the vocabulary".into() }
                .at(place())),
        },
        (None, Some(id)) if id as usize >= all.len() => {
            Err(Problem::PastVocabulary { id: id.into(), vocab: all.len() }.at(place()))
        }
        (None, id) => Ok(id),
    }
}

fn model(
    json: ModelJson,
    tokens: &[String],
    all: &Lookup,
    scores: Vec<f64>,
    kind: impl Fn(usize) -> TokenType,
    byte_level: bool,
    unk: Option<u32>,
) -> Result<Model> {
    match json.kind() {
        "BPE" => bpe(&json, tokens, all, kind, byte_level, unk).map(Model::Bpe),
        "WordPiece" => {
            let mark = json.continuing_subword_prefix.unwrap_or_else(|| "##".into());
            let longest = json.max_input_chars_per_word.unwrap_or(LONGEST_WORD);
            if longest > WORD_LIMIT {
                let place = "model.max_input_chars_per_word";
                return Err(unsupported(&longest.to_string(), &format!("at most {WORD_LIMIT}"), place));
            }
            Ok(Model::WordPiece(WordPiece::with_marked_rest(tokens, kind, unk, mark, longest)))
        }
        "Unigram" if scores.is_empty() => {
            Err(Problem::Missing("a Unigram vocabulary is a list of tokens with scores")
                .at("tokenizer.json: model.vocab"))
        }
        "Unigram" => match Unigram::new(tokens, all, scores, kind, unk, json.byte_fallback) {
            Ok(model) => Ok(Model::Unigram(model)),
            Err(e) => Err(unsupported(&e.to_string(), "a smaller vocabulary", "model.vocab")),
        },
        other => Err(unsupported(other, "BPE, WordPiece, Unigram", "model.type")),
    }
}

fn bpe(
    json: &ModelJson,
    tokens: &[String],
    all: &Lookup,
    kind: impl Fn(usize) -> TokenType,
    byte_level: bool,
    unk: Option<u32>,
) -> Result<Bpe> {
    for (affix, name) in [
        (&json.continuing_subword_prefix, "continuing_subword_prefix"),
        (&json.end_of_word_suffix, "end_of_word_suffix"),
    ] {
        if let Some(affix) = affix.as_deref().filter(|affix| !affix.is_empty()) {
            return Err(unsupported(affix, "an empty text", &format!("model.{name}")));
        }
    }
    let options = BpeOptions {
        byte_level,
        byte_fallback: json.byte_fallback,
        ignore_merges: json.ignore_merges,
        unk,
        fuse_unk: json.fuse_unk,
    };
    let merges = json.merges.iter().map(|merge| merge.sides());
    Bpe::new(tokens, all, kind, merges, options).map_err(|problem| problem.at("tokenizer.json: model.merges"))
}

/// A part of the file that this version does not know.
fn unsupported(found: &str, known: &str, place: &str) -> Error {
    Problem::Unknown { found: found.into(), known: known.into() }.at(format!("tokenizer.json: {place}"))
}

/// Checks that a file has a sensible number of steps.
fn check_steps(count: usize, place: &str) -> Result<()> {
    if count > STEP_LIMIT {
        return Err(unsupported(&format!("{count} steps"), &format!("at most {STEP_LIMIT}"), place));
    }
    Ok(())
}

/// How many times longer replacing `from` by `to` can make a text, times what earlier steps can.
fn check_growth(earlier: usize, from: usize, to: usize, place: &str) -> Result<usize> {
    let times = if from == 0 { to.saturating_add(1) } else { to.div_ceil(from).max(1) };
    let growth = earlier.saturating_mul(times);
    if growth > GROWTH_LIMIT {
        let found = format!("text made {growth} times longer");
        return Err(unsupported(&found, &format!("at most {GROWTH_LIMIT} times"), place));
    }
    Ok(growth)
}
