//! From a checkpoint's description of its tokenizer to the tokenizer.

use crate::Error;
use nibble_format::{Checkpoint, Metadata, TokenizerSource};
use nibble_tokenizer::{ModelKind, TokenType, Tokenizer, Vocab};
use std::sync::Arc;

/// The checkpoint's tokenizer; `None` if it has none, which leaves token ids as the only way to prompt it.
pub(crate) fn tokenizer(checkpoint: &Checkpoint) -> Result<Option<Arc<Tokenizer>>, Error> {
    Ok(match &checkpoint.tokenizer {
        TokenizerSource::None => None,
        TokenizerSource::Json { tokenizer, config } => {
            let mut tokenizer = Tokenizer::from_json(tokenizer, config.as_deref())?;
            tokenizer.add_end_tokens(&end_tokens(&checkpoint.metadata)?)?;
            Some(Arc::new(tokenizer))
        }
        TokenizerSource::Metadata => Some(Arc::new(Tokenizer::new(vocab(&checkpoint.metadata)?)?)),
    })
}

/// The `tokenizer.ggml.*` keys.
fn vocab(m: &Metadata) -> Result<Vocab, Error> {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let texts = |name: &str| m.find_texts(&key(name)).map(|t| t.unwrap_or_default().to_vec());
    let id = |name: &str| m.find_int::<u32>(&key(name));
    let flag = |name: &str| m.find_bool(&key(name));
    let mut v = Vocab::new(ModelKind::from_gguf(m.text(&key("model"))?)?, texts("tokens")?);
    v.pre = m.find_text(&key("pre"))?.unwrap_or_default().to_owned();
    v.merges = texts("merges")?;
    v.scores = m.find_floats(&key("scores"))?.unwrap_or_default().to_vec();
    let kind = |&n: &i64| i32::try_from(n).ok().and_then(TokenType::from_gguf).unwrap_or_default();
    v.types = m.find_ints(&key("token_type"))?.unwrap_or_default().iter().map(kind).collect();
    v.end = end_tokens(m)?;
    v.bos = id("bos_token_id")?;
    v.eos = id("eos_token_id")?;
    v.eot = id("eot_token_id")?;
    v.eom = id("eom_token_id")?;
    v.unk = id("unknown_token_id")?;
    v.sep = id("seperator_token_id")?;
    v.pad = id("padding_token_id")?;
    v.cls = id("cls_token_id")?;
    v.mask = id("mask_token_id")?;
    v.add_bos = flag("add_bos_token")?;
    v.add_eos = flag("add_eos_token")?;
    v.add_sep = flag("add_sep_token")?;
    v.add_space_prefix = flag("add_space_prefix")?;
    v.remove_extra_whitespaces = flag("remove_extra_whitespaces")?.unwrap_or(false);
    Ok(v)
}

/// Further ids that end an answer, as `generation_config.json` lists them.
fn end_tokens(m: &Metadata) -> Result<Vec<u32>, Error> {
    let ids = m.find_ints("tokenizer.ggml.eos_token_ids")?.unwrap_or_default();
    Ok(ids.iter().filter_map(|&id| u32::try_from(id).ok()).collect())
}
