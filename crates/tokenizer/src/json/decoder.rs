//! Decoders: here they only say what bytes each token stands for.

use super::file::{DecoderJson, PatternJson, PrependJson};
use super::{check_growth, unsupported};
use crate::byte_level;
use crate::error::Result;
use crate::lookup::byte_of_token;
use crate::pieces::Pieces;
use crate::vocab::TokenType;

/// What the decoder does to a token.
#[derive(Default)]
struct Rules {
    byte_level: bool,
    byte_fallback: bool,
    replace: Vec<(String, String)>,
    /// The mark of tokens that continue a word; all others start with a space.
    rest: Option<String>,
    /// The first space of the text is dropped.
    strip_start: bool,
    /// So is the first one after each special token.
    strip_after_special: bool,
}

/// The bytes of all tokens.
pub(super) fn pieces(
    json: Option<&DecoderJson>,
    tokens: &[String],
    kind: impl Fn(usize) -> TokenType,
) -> Result<Pieces> {
    let mut rules = Rules::default();
    if let Some(json) = json {
        rules.add(json)?;
    }
    let mut growth = 1;
    for (from, to) in &rules.replace {
        growth = check_growth(growth, from.len(), to.len(), "decoder")?;
    }
    let mut pieces = Pieces::new(rules.strip_start, rules.strip_after_special);
    for (id, token) in tokens.iter().enumerate() {
        pieces.push(&rules.bytes(token, kind(id)), kind(id) == TokenType::Control);
    }
    Ok(pieces)
}

impl Rules {
    fn add(&mut self, json: &DecoderJson) -> Result<()> {
        match json {
            DecoderJson::ByteLevel => self.byte_level = true,
            DecoderJson::ByteFallback => self.byte_fallback = true,
            DecoderJson::Fuse => {}
            DecoderJson::Replace { pattern: PatternJson::String(from), content } => {
                self.replace.push((from.clone(), content.clone()));
            }
            DecoderJson::Replace { pattern: PatternJson::Regex(pattern), .. } => {
                return Err(unsupported(pattern, "a plain text", "decoder.pattern"));
            }
            DecoderJson::Strip { content: ' ', start: 0 | 1, stop: 0 } => {
                self.strip_start = matches!(json, DecoderJson::Strip { start: 1, .. });
            }
            DecoderJson::Strip { .. } => {
                return Err(unsupported("Strip", "one space at the start", "decoder"));
            }
            DecoderJson::Metaspace(json) => {
                self.replace.push((json.replacement.into(), " ".into()));
                self.strip_start = json.prepend() != PrependJson::Never;
                self.strip_after_special = json.prepend() == PrependJson::Always;
            }
            DecoderJson::WordPiece { prefix } => {
                self.rest = Some(prefix.clone());
                self.strip_start = true;
                self.strip_after_special = true;
            }
            DecoderJson::Sequence { decoders } => decoders.iter().try_for_each(|json| self.add(json))?,
        }
        Ok(())
    }

    fn bytes(&self, token: &str, kind: TokenType) -> Vec<u8> {
        match (kind, byte_of_token(token), &self.rest) {
            (TokenType::Control, ..) => token.as_bytes().to_vec(),
            (TokenType::Normal, Some(byte), _) if self.byte_fallback => vec![byte],
            (TokenType::Normal, ..) if self.byte_level => byte_level::decode(token),
            (_, _, Some(mark)) => match token.strip_prefix(mark.as_str()) {
                Some(rest) => rest.as_bytes().to_vec(),
                None => format!(" {token}").into_bytes(),
            },
            _ => {
                let replace = |text: String, (from, to): &(String, String)| text.replace(from.as_str(), to);
                self.replace.iter().fold(token.to_owned(), replace).into_bytes()
            }
        }
    }
}
