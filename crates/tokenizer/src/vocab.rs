//! What a GGUF file says about its tokenizer.

use crate::error::{Problem, Result};

/// How words become tokens: `tokenizer.ggml.model`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// `gpt2`: merges over bytes, each byte written as one printable character.
    ByteBpe,
    /// `gemma4`: merges over characters, spaces written as `▁`, bytes as `<0xXX>` for characters without a token.
    TextBpe,
    /// `llama`: the pair whose joined token scores highest merges first; spaces and bytes as in `TextBpe`.
    SentencePiece,
    /// `bert`: the longest token first within each lower-cased word; a word's first token starts with `▁`.
    WordPiece,
}

impl ModelKind {
    const NAMES: &[(&str, Self)] = &[
        ("gpt2", Self::ByteBpe),
        ("gemma4", Self::TextBpe),
        ("llama", Self::SentencePiece),
        ("bert", Self::WordPiece),
    ];

    /// The kind that GGUF calls `name`.
    ///
    /// # Errors
    /// [`Problem::Unknown`] for any other name.
    pub fn from_gguf(name: &str) -> Result<Self> {
        let known = || Self::NAMES.iter().map(|(n, _)| *n).collect::<Vec<_>>().join(", ");
        match Self::NAMES.iter().find(|(n, _)| *n == name) {
            Some((_, kind)) => Ok(*kind),
            None => {
                Err(Problem::Unknown { found: name.into(), known: known() }.at("key `tokenizer.ggml.model`"))
            }
        }
    }
}

/// What a token is for: `tokenizer.ggml.token_type`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenType {
    /// Ordinary text (1).
    #[default]
    Normal,
    /// The stand-in for what cannot be written (2).
    Unknown,
    /// Steers the model and is never plain text (3).
    Control,
    /// Plain text that is always one token (4).
    UserDefined,
    /// Never produced (5).
    Unused,
    /// One byte, written `<0xXX>` (6).
    Byte,
}

impl TokenType {
    /// The type that GGUF numbers `n`; `None` if there is no such type. 0 (undefined) counts as normal.
    pub fn from_gguf(n: i32) -> Option<Self> {
        Some(match n {
            0 | 1 => Self::Normal,
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => return None,
        })
    }
}

/// The tokenizer keys of a GGUF file; each field names its key under `tokenizer.ggml.`.
///
/// `None` stands for an absent key: the tokenizer then does what files of that model and pre-tokenizer mean by it.
#[derive(Clone, Debug)]
pub struct Vocab {
    /// `model`.
    pub model: ModelKind,
    /// `pre`: the pre-tokenizer of `ByteBpe`, one of [`crate::PRETOKENIZERS`]; the other kinds do not read it.
    pub pre: String,
    /// `tokens`: the text of each id.
    pub tokens: Vec<String>,
    /// `scores`: one for each token; only `SentencePiece` needs them, and they may be empty elsewhere.
    pub scores: Vec<f32>,
    /// `token_type`: one for each token, or empty when all are normal.
    pub types: Vec<TokenType>,
    /// `merges`: `left right`, the most important first; for the two BPE kinds.
    pub merges: Vec<String>,
    /// `bos_token_id`.
    pub bos: Option<u32>,
    /// `eos_token_id`.
    pub eos: Option<u32>,
    /// `eot_token_id`.
    pub eot: Option<u32>,
    /// `eom_token_id`.
    pub eom: Option<u32>,
    /// `unknown_token_id`.
    pub unk: Option<u32>,
    /// `seperator_token_id` (spelled so).
    pub sep: Option<u32>,
    /// `padding_token_id`.
    pub pad: Option<u32>,
    /// `cls_token_id`.
    pub cls: Option<u32>,
    /// `mask_token_id`.
    pub mask: Option<u32>,
    /// Further ids that end generation, such as the list in `generation_config.json`.
    pub end: Vec<u32>,
    /// `add_bos_token`.
    pub add_bos: Option<bool>,
    /// `add_eos_token`.
    pub add_eos: Option<bool>,
    /// `add_sep_token`.
    pub add_sep: Option<bool>,
    /// `add_space_prefix`: `SentencePiece` puts a space before text at the start and after control tokens.
    pub add_space_prefix: Option<bool>,
    /// `remove_extra_whitespaces`: `SentencePiece` trims spaces and makes runs of them one.
    pub remove_extra_whitespaces: bool,
    /// Tokens that swallow the white space before them. GGUF has no key for it; empty unless the caller knows better.
    pub lstrip: Vec<u32>,
    /// Tokens that swallow the white space after them (Phi-3's control tokens do).
    pub rstrip: Vec<u32>,
}

impl Vocab {
    /// A vocabulary with these tokens and nothing else said.
    pub fn new(model: ModelKind, tokens: Vec<String>) -> Self {
        Self {
            model,
            tokens,
            pre: String::new(),
            scores: Vec::new(),
            types: Vec::new(),
            merges: Vec::new(),
            bos: None,
            eos: None,
            eot: None,
            eom: None,
            unk: None,
            sep: None,
            pad: None,
            cls: None,
            mask: None,
            end: Vec::new(),
            add_bos: None,
            add_eos: None,
            add_sep: None,
            add_space_prefix: None,
            remove_extra_whitespaces: false,
            lstrip: Vec::new(),
            rstrip: Vec::new(),
        }
    }

    /// The type of token `id`; normal when the file gives none.
    pub fn token_type(&self, id: usize) -> TokenType {
        self.types.get(id).copied().unwrap_or_default()
    }

    /// Checks lengths and ids, so that everything after may index freely.
    pub(crate) fn check(&self) -> Result<()> {
        let vocab = self.tokens.len();
        if vocab == 0 {
            return Err(
                Problem::Missing("a tokenizer needs at least one token").at("key `tokenizer.ggml.tokens`")
            );
        }
        if u32::try_from(vocab).is_err() {
            let id = vocab as u64 - 1;
            return Err(
                Problem::PastVocabulary { id, vocab: u32::MAX as usize }.at("key `tokenizer.ggml.tokens`")
            );
        }
        self.check_lengths(vocab)?;
        self.check_ids(vocab)
    }

    fn check_lengths(&self, vocab: usize) -> Result<()> {
        let scored = self.model == ModelKind::SentencePiece;
        for (name, found, needed) in
            [("scores", self.scores.len(), scored), ("token_type", self.types.len(), false)]
        {
            if found != vocab && (found != 0 || needed) {
                return Err(
                    Problem::Length { expected: vocab, found }.at(format!("key `tokenizer.ggml.{name}`"))
                );
            }
        }
        Ok(())
    }

    fn check_ids(&self, vocab: usize) -> Result<()> {
        let named = [
            ("bos_token_id", self.bos),
            ("eos_token_id", self.eos),
            ("eot_token_id", self.eot),
            ("eom_token_id", self.eom),
            ("unknown_token_id", self.unk),
            ("seperator_token_id", self.sep),
            ("padding_token_id", self.pad),
            ("cls_token_id", self.cls),
            ("mask_token_id", self.mask),
        ];
        let lists = [("end ids", &self.end), ("lstrip ids", &self.lstrip), ("rstrip ids", &self.rstrip)];
        let ids = named.into_iter().filter_map(|(name, id)| Some((name, id?)));
        let ids = ids.chain(lists.into_iter().flat_map(|(name, ids)| ids.iter().map(move |&id| (name, id))));
        for (name, id) in ids {
            if id as usize >= vocab {
                return Err(Problem::PastVocabulary { id: id.into(), vocab }
                    .at(format!("key `tokenizer.ggml.{name}`")));
            }
        }
        Ok(())
    }
}
