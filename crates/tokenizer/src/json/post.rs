//! What is put before and after a text.

use super::file::{Config, PostJson, TemplatePiece};
use super::unsupported;
use crate::error::{Problem, Result};
use crate::lookup::Lookup;

/// The ids before and after a text; all are below `vocab`.
pub(super) fn around(
    post: Option<&PostJson>,
    config: &Config,
    all: &Lookup,
    vocab: usize,
) -> Result<(Vec<u32>, Vec<u32>)> {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    if let Some(post) = post {
        collect(post, all, &mut before, &mut after)?;
    }
    for &id in before.iter().chain(&after) {
        if id as usize >= vocab {
            return Err(Problem::PastVocabulary { id: id.into(), vocab }.at("tokenizer.json: post_processor"));
        }
    }
    let bos = config.id(&config.bos_token, "bos_token", all)?;
    let eos = config.id(&config.eos_token, "eos_token", all)?;
    apply(config.add_bos_token, bos, &mut before);
    apply(config.add_eos_token, eos, &mut after);
    Ok((before, after))
}

/// The config's switches overrule the template.
fn apply(wanted: Option<bool>, id: Option<u32>, ids: &mut Vec<u32>) {
    match (wanted, id) {
        (Some(true), Some(id)) if !ids.contains(&id) => ids.push(id),
        (Some(false), Some(id)) => ids.retain(|&other| other != id),
        _ => {}
    }
}

fn collect(post: &PostJson, all: &Lookup, before: &mut Vec<u32>, after: &mut Vec<u32>) -> Result<()> {
    match post {
        PostJson::ByteLevel => {}
        PostJson::Sequence { processors } => {
            for post in processors {
                collect(post, all, before, after)?;
            }
        }
        PostJson::RobertaProcessing { sep, cls } | PostJson::BertProcessing { sep, cls } => {
            before.push(cls.1);
            after.push(sep.1);
        }
        PostJson::TemplateProcessing { single, special_tokens } => {
            let mut side = before;
            for piece in single {
                match piece {
                    TemplatePiece::Sequence {} => side = after,
                    TemplatePiece::SpecialToken { id } => side.extend(template_ids(id, special_tokens, all)?),
                }
            }
        }
    }
    Ok(())
}

/// The ids of a template's token: the template's own list of them, else the token of that text.
fn template_ids(
    name: &str,
    special_tokens: &serde_json::Map<String, serde_json::Value>,
    all: &Lookup,
) -> Result<Vec<u32>> {
    let listed = special_tokens.get(name).and_then(|token| token.get("ids")).and_then(|ids| ids.as_array());
    let ids: Option<Vec<u32>> = match listed {
        Some(ids) => ids.iter().map(|id| id.as_u64().and_then(|id| u32::try_from(id).ok())).collect(),
        None => all.get(name).map(|id| vec![id]),
    };
    ids.ok_or_else(|| unsupported(name, "tokens of the vocabulary", "post_processor"))
}
