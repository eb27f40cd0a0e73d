//! The shape of `tokenizer.json` and `tokenizer_config.json`.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use crate::bpe::split_merge;
use crate::error::{Problem, Result};
use crate::lookup::Lookup;
use crate::split::Behavior;

#[derive(serde::Deserialize)]
pub(super) struct File {
    #[serde(default)]
    pub added_tokens: Vec<AddedJson>,
    pub normalizer: Option<NormalizerJson>,
    pub pre_tokenizer: Option<PreJson>,
    pub post_processor: Option<PostJson>,
    pub decoder: Option<DecoderJson>,
    pub model: ModelJson,
}

#[derive(serde::Deserialize)]
pub(super) struct AddedJson {
    pub id: u32,
    pub content: String,
    #[serde(default)]
    pub single_word: bool,
    #[serde(default)]
    pub lstrip: bool,
    #[serde(default)]
    pub rstrip: bool,
    #[serde(default)]
    pub normalized: bool,
    #[serde(default)]
    pub special: bool,
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
pub(super) enum NormalizerJson {
    #[serde(rename = "NFC")]
    Nfc,
    #[serde(rename = "NFD")]
    Nfd,
    #[serde(rename = "NFKC")]
    Nfkc,
    #[serde(rename = "NFKD")]
    Nfkd,
    Lowercase,
    StripAccents,
    Strip {
        strip_left: bool,
        strip_right: bool,
    },
    Prepend {
        prepend: String,
    },
    Replace {
        pattern: PatternJson,
        content: String,
    },
    BertNormalizer {
        clean_text: bool,
        handle_chinese_chars: bool,
        strip_accents: Option<bool>,
        lowercase: bool,
    },
    Sequence {
        normalizers: Vec<NormalizerJson>,
    },
}

#[derive(serde::Deserialize)]
pub(super) enum PatternJson {
    String(String),
    Regex(String),
}

#[derive(Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum PrependJson {
    First,
    Never,
    Always,
}

#[derive(serde::Deserialize)]
pub(super) struct MetaspaceJson {
    pub replacement: char,
    pub prepend_scheme: Option<PrependJson>,
    pub add_prefix_space: Option<bool>,
    pub split: Option<bool>,
}

impl MetaspaceJson {
    /// Where the space is put; older files have a plain yes or no.
    pub fn prepend(&self) -> PrependJson {
        let plain =
            if self.add_prefix_space.unwrap_or(true) { PrependJson::Always } else { PrependJson::Never };
        self.prepend_scheme.unwrap_or(plain)
    }
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
pub(super) enum PreJson {
    ByteLevel {
        add_prefix_space: Option<bool>,
        use_regex: Option<bool>,
    },
    Split {
        pattern: PatternJson,
        behavior: Behavior,
        #[serde(default)]
        invert: bool,
    },
    Digits {
        #[serde(default)]
        individual_digits: bool,
    },
    Punctuation {
        behavior: Option<Behavior>,
    },
    Metaspace(MetaspaceJson),
    Whitespace,
    WhitespaceSplit,
    BertPreTokenizer,
    Sequence {
        pretokenizers: Vec<PreJson>,
    },
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
pub(super) enum PostJson {
    TemplateProcessing {
        single: Vec<TemplatePiece>,
        special_tokens: serde_json::Map<String, serde_json::Value>,
    },
    ByteLevel,
    RobertaProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    BertProcessing {
        sep: (String, u32),
        cls: (String, u32),
    },
    Sequence {
        processors: Vec<PostJson>,
    },
}

#[derive(serde::Deserialize)]
pub(super) enum TemplatePiece {
    SpecialToken { id: String },
    Sequence {},
}

#[derive(serde::Deserialize)]
#[serde(tag = "type")]
pub(super) enum DecoderJson {
    ByteLevel,
    ByteFallback,
    Fuse,
    Replace { pattern: PatternJson, content: String },
    Strip { content: char, start: usize, stop: usize },
    Metaspace(MetaspaceJson),
    WordPiece { prefix: String },
    Sequence { decoders: Vec<DecoderJson> },
}

#[derive(serde::Deserialize)]
pub(super) struct ModelJson {
    #[serde(rename = "type")]
    kind: Option<String>,
    pub vocab: VocabJson,
    #[serde(default)]
    pub merges: Vec<MergeJson>,
    pub unk_token: Option<String>,
    pub unk_id: Option<u32>,
    #[serde(default)]
    pub byte_fallback: bool,
    #[serde(default)]
    pub fuse_unk: bool,
    #[serde(default)]
    pub ignore_merges: bool,
    pub continuing_subword_prefix: Option<String>,
    pub end_of_word_suffix: Option<String>,
    pub max_input_chars_per_word: Option<usize>,
}

impl ModelJson {
    /// The model's type; old files leave it out, and only BPE has merges.
    pub fn kind(&self) -> &str {
        match (&self.kind, self.merges.is_empty()) {
            (Some(kind), _) => kind,
            (None, false) => "BPE",
            (None, true) => "none",
        }
    }
}

/// `{token: id}` or `[[token, score]]`.
pub(super) enum VocabJson {
    Ids(Vec<(String, u32)>),
    Scores(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for VocabJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = VocabJson;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of tokens to ids or a list of tokens with scores")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<VocabJson, A::Error> {
                let mut ids = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    ids.push(entry);
                }
                Ok(VocabJson::Ids(ids))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<VocabJson, A::Error> {
                let mut scores = Vec::new();
                while let Some(entry) = list.next_element()? {
                    scores.push(entry);
                }
                Ok(VocabJson::Scores(scores))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// `"left right"` or `["left", "right"]`.
pub(super) enum MergeJson {
    Text(String),
    Pair(String, String),
}

impl MergeJson {
    /// Left and right; `None` for a text without a space in it.
    pub fn sides(&self) -> Option<(&str, &str)> {
        match self {
            Self::Text(text) => split_merge(text),
            Self::Pair(left, right) => Some((left, right)),
        }
    }
}

impl<'de> Deserialize<'de> for MergeJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = MergeJson;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a merge: `left right` or a list of both")
            }
            fn visit_str<E>(self, text: &str) -> Result<MergeJson, E> {
                Ok(MergeJson::Text(text.into()))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<MergeJson, A::Error> {
                let (left, right) =
                    Deserialize::deserialize(serde::de::value::SeqAccessDeserializer::new(list))?;
                Ok(MergeJson::Pair(left, right))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// What `tokenizer_config.json` adds.
#[derive(Default, serde::Deserialize)]
pub(super) struct Config {
    pub add_bos_token: Option<bool>,
    pub add_eos_token: Option<bool>,
    pub bos_token: Option<TokenJson>,
    pub eos_token: Option<TokenJson>,
    pub pad_token: Option<TokenJson>,
}

/// A token by its text, alone or in an object.
#[derive(serde::Deserialize)]
#[serde(untagged)]
pub(super) enum TokenJson {
    Text(String),
    Object { content: String },
}

impl Config {
    /// The id of one of the config's tokens.
    pub fn id(&self, token: &Option<TokenJson>, key: &str, all: &Lookup) -> Result<Option<u32>> {
        let Some(TokenJson::Text(text) | TokenJson::Object { content: text }) = token else {
            return Ok(None);
        };
        match all.get(text) {
            Some(id) => Ok(Some(id)),
            None => Err(Problem::Unknown { found: text.clone(), known: "tokens of the vocabulary".into() }
                .at(format!("tokenizer_config.json: {key}"))),
        }
    }
}
