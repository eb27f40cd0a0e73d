//! Rewriting text before it is split into words.

use regex::Regex;
use unicode_normalization::UnicodeNormalization;

/// One rewriting.
#[derive(Debug)]
pub(crate) enum Normalize {
    /// Unicode normalization forms.
    Nfc,
    Nfd,
    Nfkc,
    Nfkd,
    Lowercase,
    /// Puts a text before each non-empty stretch.
    Prepend(String),
    Replace(String, String),
    ReplaceAll(Regex, String),
    /// Puts a character on both sides of each match.
    Surround(Regex, char),
    /// Drops white space at the ends.
    Strip {
        left: bool,
        right: bool,
    },
    /// Trims spaces and makes runs of them one.
    SqueezeSpaces,
}

impl Normalize {
    /// The rewritten text.
    pub fn apply(&self, text: String) -> String {
        match self {
            Self::Nfc if unicode_normalization::is_nfc(&text) => text,
            Self::Nfc => text.nfc().collect(),
            Self::Nfd => text.nfd().collect(),
            Self::Nfkc => text.nfkc().collect(),
            Self::Nfkd => text.nfkd().collect(),
            Self::Lowercase => text.chars().flat_map(char::to_lowercase).collect(),
            Self::Prepend(_) if text.is_empty() => text,
            Self::Prepend(prefix) => prefix.clone() + &text,
            Self::Replace(from, to) => text.replace(from.as_str(), to),
            Self::ReplaceAll(pattern, to) => {
                pattern.replace_all(&text, regex::NoExpand(to.as_str())).into_owned()
            }
            Self::Surround(pattern, side) => {
                pattern.replace_all(&text, format!("{side}$0{side}")).into_owned()
            }
            Self::Strip { left, right } => {
                let text = if *left { text.trim_start() } else { &text };
                (if *right { text.trim_end() } else { text }).to_owned()
            }
            Self::SqueezeSpaces => {
                text.split(' ').filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
            }
        }
    }
}

/// All rewritings in order.
pub(crate) fn normalize(steps: &[Normalize], text: &str) -> String {
    steps.iter().fold(text.to_owned(), |text, step| step.apply(text))
}

/// The switches of BERT's normalizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bert {
    pub clean: bool,
    pub split_chinese: bool,
    pub strip_accents: bool,
    pub lowercase: bool,
}

impl Default for Bert {
    fn default() -> Self {
        Self { clean: true, split_chinese: true, strip_accents: true, lowercase: true }
    }
}

/// CJK ideographs, each of which is a word. The gap from U+2B820 to U+2B91F is one that the models were trained with.
const CHINESE: &str = r"[\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}]";

/// Control, format and unassigned characters, but no white space.
const NOT_TEXT: &str = r"[\x00\x{FFFD}]|[\p{C}--\s]";

/// Drops combining marks, for use after `Nfd`.
pub(crate) fn strip_accents() -> Normalize {
    Normalize::ReplaceAll(constant(r"\p{Mn}"), String::new())
}

fn constant(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// What BERT does to a text before it looks for words.
pub(crate) fn bert(switches: Bert) -> Vec<Normalize> {
    let steps = [
        (switches.clean, vec![Normalize::ReplaceAll(constant(NOT_TEXT), String::new())]),
        (switches.split_chinese, vec![Normalize::Surround(constant(CHINESE), ' ')]),
        (switches.strip_accents, vec![Normalize::Nfd, strip_accents()]),
        (switches.lowercase, vec![Normalize::Lowercase]),
    ];
    steps.into_iter().filter(|(wanted, _)| *wanted).flat_map(|(_, steps)| steps).collect()
}
