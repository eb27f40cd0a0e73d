//! A tokenizer from the keys of a GGUF file.

use std::sync::Arc;

use crate::added::{Added, AddedToken};
use crate::bpe::{Bpe, BpeOptions, split_merge};
use crate::end::end_tokens;
use crate::error::{Problem, Result};
use crate::lookup::{Lookup, byte_of_token, glue};
use crate::normalize::{Normalize, bert};
use crate::pieces::Pieces;
use crate::pretokenizers::{self, Pretokenizer};
use crate::sentencepiece::SentencePiece;
use crate::split::{Behavior, Rule, Step};
use crate::tokenizer::{Model, Named, Prefix, Spaces, Tokenizer};
use crate::vocab::{ModelKind, TokenType, Vocab};
use crate::wordpiece::WordPiece;
use crate::{byte_level, normalize};

impl Tokenizer {
    /// Makes the tokenizer that `vocab` describes.
    ///
    /// # Errors
    /// Arrays of different lengths, ids past the vocabulary, merges of tokens that do not exist, and a pre-tokenizer
    /// that is missing or unknown: all are refused with the key concerned.
    pub fn new(mut vocab: Vocab) -> Result<Self> {
        vocab.check()?;
        let all = Lookup::of_all(&vocab.tokens);
        name_sentencepiece_ids(&mut vocab, &all);
        let pre = pretokenizer(&vocab)?;
        let kind = |id| vocab.token_type(id);
        Ok(Self {
            pieces: Arc::new(pieces(&vocab)),
            added: Added::new(added_tokens(&vocab))?,
            normalizers: normalizers(&vocab),
            added_after: Added::default(),
            spaces: spaces(&vocab),
            steps: steps(&vocab, pre)?,
            model: model(&vocab, &all, pre)?,
            around: around(&vocab, pre),
            named: Named {
                bos: vocab.bos.or(vocab.cls),
                eos: vocab.eos,
                unk: vocab.unk,
                pad: vocab.pad,
                end: end_tokens(
                    &vocab.tokens,
                    kind,
                    [vocab.eos, vocab.eot, vocab.eom].into_iter().flatten().chain(vocab.end.iter().copied()),
                ),
            },
            all,
        })
    }
}

/// SentencePiece files may leave out the ids that their tokens name.
fn name_sentencepiece_ids(vocab: &mut Vocab, all: &Lookup) {
    if vocab.model == ModelKind::SentencePiece {
        vocab.bos = vocab.bos.or(all.get("<s>"));
        vocab.eos = vocab.eos.or(all.get("</s>"));
        vocab.unk = vocab.unk.or(all.get("<unk>"));
    }
}

fn pretokenizer(vocab: &Vocab) -> Result<Option<&'static Pretokenizer>> {
    const KEY: &str = "key `tokenizer.ggml.pre`";
    if vocab.model != ModelKind::ByteBpe {
        return Ok(None);
    }
    if vocab.pre.is_empty() {
        let advice =
            "without it text would be split wrongly; set it to the model's pre-tokenizer, or to `default`";
        return Err(Problem::Missing(advice).at(KEY));
    }
    match pretokenizers::find(&vocab.pre) {
        Some(pre) => Ok(Some(pre)),
        None => Err(Problem::Unknown { found: vocab.pre.clone(), known: pretokenizers::names() }.at(KEY)),
    }
}

/// Whether spaces are written as `▁` in the tokens.
fn marks_spaces(model: ModelKind) -> bool {
    model != ModelKind::ByteBpe
}

fn has_space_prefix(vocab: &Vocab) -> bool {
    vocab.add_space_prefix.unwrap_or(vocab.model == ModelKind::SentencePiece)
}

fn is_special(kind: TokenType) -> bool {
    matches!(kind, TokenType::Control | TokenType::Unknown)
}

fn pieces(vocab: &Vocab) -> Pieces {
    let prefix = has_space_prefix(vocab) || vocab.model == ModelKind::WordPiece;
    let mut pieces = Pieces::new(prefix, prefix);
    for (id, token) in vocab.tokens.iter().enumerate() {
        let kind = vocab.token_type(id);
        let bytes = match (kind, byte_of_token(token)) {
            (TokenType::Byte, Some(byte)) => vec![byte],
            (TokenType::Normal | TokenType::Unused, _) if vocab.model == ModelKind::ByteBpe => {
                byte_level::decode(token)
            }
            (TokenType::Control | TokenType::Unknown, _) => token.as_bytes().to_vec(),
            _ => plain_text(vocab.model, token).into_bytes(),
        };
        pieces.push(&bytes, is_special(kind));
    }
    pieces
}

fn plain_text(model: ModelKind, token: &str) -> String {
    if marks_spaces(model) { token.replace('▁', " ") } else { token.to_owned() }
}

fn added_tokens(vocab: &Vocab) -> Vec<AddedToken> {
    let added = |(id, token): (usize, &String)| {
        let kind = vocab.token_type(id);
        let text = match kind {
            TokenType::Control | TokenType::Unknown => token.clone(),
            TokenType::UserDefined => plain_text(vocab.model, token),
            _ => return None,
        };
        let id = id as u32;
        Some(AddedToken {
            id,
            text,
            special: is_special(kind),
            single_word: false,
            lstrip: vocab.lstrip.contains(&id),
            rstrip: vocab.rstrip.contains(&id),
        })
    };
    vocab.tokens.iter().enumerate().filter_map(added).collect()
}

fn normalizers(vocab: &Vocab) -> Vec<Normalize> {
    match vocab.model {
        ModelKind::WordPiece => bert(normalize::Bert::default()),
        ModelKind::SentencePiece if vocab.remove_extra_whitespaces => vec![Normalize::SqueezeSpaces],
        _ => Vec::new(),
    }
}

fn spaces(vocab: &Vocab) -> Spaces {
    let prefix = if has_space_prefix(vocab) { Prefix::Always } else { Prefix::Never };
    match vocab.model {
        ModelKind::SentencePiece | ModelKind::TextBpe => Spaces { prefix, marked: true },
        ModelKind::ByteBpe => Spaces { prefix, marked: false },
        ModelKind::WordPiece => Spaces::default(),
    }
}

fn steps(vocab: &Vocab, pre: Option<&Pretokenizer>) -> Result<Vec<Step>> {
    let at_marks = glue(&vocab.tokens).map(|glue| Step::Marks { glue });
    let steps: Result<Vec<Step>, Problem> = match vocab.model {
        ModelKind::ByteBpe => {
            pre.into_iter().flat_map(|pre| pre.rules).map(|&rule| Step::new(rule)).collect()
        }
        // No token of these vocabularies crosses the edge of a run of line breaks.
        ModelKind::TextBpe => {
            Step::new(Rule::Isolate(r"[^\n]+|\n+")).map(|lines| [lines].into_iter().chain(at_marks).collect())
        }
        ModelKind::SentencePiece => Ok(at_marks.into_iter().collect()),
        ModelKind::WordPiece => bert_words(),
    };
    steps.map_err(|problem| problem.at("pre-tokenizer"))
}

/// BERT's words: white space is dropped, and each punctuation character is a word.
pub(crate) fn bert_words() -> Result<Vec<Step>, Problem> {
    Ok(vec![
        Step::pattern(r"\s+", Behavior::Removed, false)?,
        Step::pattern(r"[\p{P}$+<=>^`|~]", Behavior::Isolated, false)?,
    ])
}

fn model(vocab: &Vocab, all: &Lookup, pre: Option<&Pretokenizer>) -> Result<Model> {
    let kind = |id| vocab.token_type(id);
    Ok(match vocab.model {
        ModelKind::ByteBpe | ModelKind::TextBpe => {
            let byte_level = vocab.model == ModelKind::ByteBpe;
            let options = BpeOptions {
                byte_level,
                byte_fallback: !byte_level,
                ignore_merges: pre.is_some_and(|pre| pre.ignore_merges),
                unk: vocab.unk.filter(|_| !byte_level),
                fuse_unk: true,
            };
            let merges = vocab.merges.iter().map(|merge| split_merge(merge));
            let bpe = Bpe::new(&vocab.tokens, all, kind, merges, options);
            Model::Bpe(bpe.map_err(|problem| problem.at("key `tokenizer.ggml.merges`"))?)
        }
        ModelKind::SentencePiece => {
            Model::SentencePiece(SentencePiece::new(&vocab.tokens, all, &vocab.scores, kind, vocab.unk))
        }
        ModelKind::WordPiece => {
            Model::WordPiece(WordPiece::with_marked_starts(&vocab.tokens, kind, vocab.unk))
        }
    })
}

/// The ids before and after a text.
fn around(vocab: &Vocab, pre: Option<&Pretokenizer>) -> (Vec<u32>, Vec<u32>) {
    let add_bos = vocab.add_bos.unwrap_or(pre.is_none_or(|pre| pre.add_bos));
    let add_eos = vocab.add_eos.unwrap_or(false);
    let add_sep = vocab.add_sep.unwrap_or(vocab.model == ModelKind::WordPiece);
    let before = vocab.bos.or(vocab.cls).filter(|_| add_bos);
    let after = [vocab.sep.filter(|_| add_sep), vocab.eos.filter(|_| add_eos)];
    (before.into_iter().collect(), after.into_iter().flatten().collect())
}
