//! Normalizers and pre-tokenizers.

use super::file::{MetaspaceJson, NormalizerJson, PatternJson, PreJson, PrependJson};
use super::{check_growth, check_steps, unsupported};
use crate::error::Result;
use crate::from_vocab::bert_words;
use crate::normalize::{Bert, Normalize, bert, strip_accents};
use crate::pretokenizers::GPT2;
use crate::split::{Behavior, Pattern, Step};
use crate::tokenizer::{Prefix, Spaces};

/// How text becomes words.
#[derive(Default)]
pub(super) struct Words {
    pub steps: Vec<Step>,
    pub spaces: Spaces,
    /// Words are bytes, each written as one printable character.
    pub byte_level: bool,
}

/// The normalizers in order.
pub(super) fn normalizers(json: Option<&NormalizerJson>) -> Result<Vec<Normalize>> {
    let mut steps = Vec::new();
    if let Some(json) = json {
        push_normalizer(json, &mut steps)?;
    }
    check_normalizers(&steps)?;
    Ok(steps)
}

/// Bounds what a hostile file could make of a text.
fn check_normalizers(steps: &[Normalize]) -> Result<()> {
    const PLACE: &str = "normalizer";
    check_steps(steps.len(), PLACE)?;
    let mut growth = 1;
    for step in steps {
        growth = match step {
            Normalize::Prepend(prefix) => check_growth(growth, 1, prefix.len(), PLACE)?,
            Normalize::Replace(from, to) => check_growth(growth, from.len(), to.len(), PLACE)?,
            Normalize::ReplaceAll(pattern, to) => {
                check_growth(growth, usize::from(!pattern.is_match("")), to.len(), PLACE)?
            }
            _ => growth,
        };
    }
    Ok(())
}

fn push_normalizer(json: &NormalizerJson, steps: &mut Vec<Normalize>) -> Result<()> {
    steps.push(match json {
        NormalizerJson::Nfc => Normalize::Nfc,
        NormalizerJson::Nfd => Normalize::Nfd,
        NormalizerJson::Nfkc => Normalize::Nfkc,
        NormalizerJson::Nfkd => Normalize::Nfkd,
        NormalizerJson::Lowercase => Normalize::Lowercase,
        NormalizerJson::StripAccents => strip_accents(),
        NormalizerJson::Strip { strip_left, strip_right } => {
            Normalize::Strip { left: *strip_left, right: *strip_right }
        }
        NormalizerJson::Prepend { prepend } => Normalize::Prepend(prepend.clone()),
        NormalizerJson::Replace { pattern: PatternJson::String(from), content } => {
            Normalize::Replace(from.clone(), content.clone())
        }
        NormalizerJson::Replace { pattern: PatternJson::Regex(pattern), content } => {
            let pattern = Pattern::plain(pattern).map_err(|p| p.at("tokenizer.json: normalizer"))?;
            Normalize::ReplaceAll(pattern, content.clone())
        }
        NormalizerJson::BertNormalizer { clean_text, handle_chinese_chars, strip_accents, lowercase } => {
            steps.extend(bert(Bert {
                clean: *clean_text,
                split_chinese: *handle_chinese_chars,
                strip_accents: strip_accents.unwrap_or(*lowercase),
                lowercase: *lowercase,
            }));
            return Ok(());
        }
        NormalizerJson::Sequence { normalizers } => {
            return normalizers.iter().try_for_each(|json| push_normalizer(json, steps));
        }
    });
    Ok(())
}

/// The pre-tokenizer.
pub(super) fn compile(json: Option<&PreJson>) -> Result<Words> {
    let mut words = Words::default();
    if let Some(json) = json {
        push(json, &mut words)?;
    }
    Ok(words)
}

fn push(json: &PreJson, words: &mut Words) -> Result<()> {
    match json {
        PreJson::Sequence { pretokenizers } => pretokenizers.iter().try_for_each(|json| push(json, words)),
        PreJson::Metaspace(json) => push_metaspace(json, words),
        PreJson::ByteLevel { add_prefix_space, use_regex } => {
            if add_prefix_space.unwrap_or(true) {
                put_prefix(words, Spaces { prefix: Prefix::Each, marked: false })?;
            }
            words.byte_level = true;
            if use_regex.unwrap_or(true) { step(GPT2, Behavior::Isolated, false, words) } else { Ok(()) }
        }
        PreJson::Split { pattern, behavior, invert } => match pattern {
            PatternJson::Regex(pattern) => step(pattern, *behavior, *invert, words),
            PatternJson::String(text) => step(&regex::escape(text), *behavior, *invert, words),
        },
        PreJson::Digits { individual_digits: true } => step(r"\p{N}", Behavior::Isolated, false, words),
        PreJson::Digits { individual_digits: false } => step(r"\p{N}+", Behavior::Isolated, false, words),
        PreJson::Punctuation { behavior } => {
            step(r"[\p{P}$+<=>^`|~]", behavior.unwrap_or(Behavior::Isolated), false, words)
        }
        PreJson::Whitespace => step(r"\w+|[^\w\s]+", Behavior::Removed, true, words),
        PreJson::WhitespaceSplit => step(r"\s+", Behavior::Removed, false, words),
        PreJson::BertPreTokenizer => {
            words.steps.extend(bert_words().map_err(|p| p.at("tokenizer.json: pre_tokenizer"))?);
            Ok(())
        }
    }
}

fn push_metaspace(json: &MetaspaceJson, words: &mut Words) -> Result<()> {
    if json.replacement != '▁' {
        return Err(unsupported(&json.replacement.to_string(), "▁", "pre_tokenizer.replacement"));
    }
    let prefix = match json.prepend() {
        PrependJson::Never => Prefix::Never,
        PrependJson::First => Prefix::First,
        PrependJson::Always => Prefix::Each,
    };
    put_prefix(words, Spaces { prefix, marked: true })?;
    if json.split.unwrap_or(true) { step("▁", Behavior::MergedWithNext, false, words) } else { Ok(()) }
}

/// Spaces are settled before the text is split, so nothing may have split it yet.
fn put_prefix(words: &mut Words, spaces: Spaces) -> Result<()> {
    if !words.steps.is_empty() && spaces.prefix != Prefix::Never {
        return Err(unsupported("a space prefix after a split", "a space prefix first", "pre_tokenizer"));
    }
    words.spaces = spaces;
    Ok(())
}

fn step(pattern: &str, behavior: Behavior, invert: bool, words: &mut Words) -> Result<()> {
    check_steps(words.steps.len() + 1, "pre_tokenizer")?;
    let step = Step::pattern(pattern, behavior, invert);
    words.steps.push(step.map_err(|problem| problem.at("tokenizer.json: pre_tokenizer"))?);
    Ok(())
}
