//! Which encoding a kind of tensor gets: rules as data, the first one that holds wins.
//!
//! A recipe is either one encoding for all matrices but the output, or one of llama.cpp's file types (`recipes.rs`).

use super::recipes::{self, FILE_TYPES, Row};
use crate::{Error, Kind};
use nibble_format::{Value, gguf::Entry};
use nibble_quant::{Codec, Registry, Spec};
use std::collections::HashMap;

/// What the matrices of the output become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// All of them this encoding, by its name, but the output matrix, which gets no fewer than six bits.
    Encoding(String),
    /// A mix, by llama.cpp's name of the file type: `q4_k_m`.
    FileType(String),
}

/// Kinds of matrices that recipes tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    /// The output matrix, or the embedding if it serves as one.
    Head,
    /// The embedding, if it does not.
    Embedding,
    /// Values, alone or joined with queries and keys.
    Values,
    /// Keys.
    Keys,
    /// Behind attention.
    AttentionOutput,
    /// The last matrix of a feed-forward layer, or of its experts.
    Down,
    /// Everything else.
    Other,
}

/// What must hold for a rule. Of `n` tensors of a kind, the one at hand is number `i`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// `i` is below that number.
    First(usize),
    /// `i` is in the first part of that many.
    FirstPart(usize),
    /// `i` is in the first or the last eighth, or every third one between.
    EndsAndThirds,
    /// Four or more query heads share a key head.
    SharedKeys,
    /// The model has that many experts.
    Experts(usize),
    /// The model is of the size that llama.cpp calls 70B.
    Large,
    /// Whether there are column weights.
    Weights(bool),
    /// The tensor is a stack of matrices.
    Stack,
}

/// Matrices of this kind, if all of `when` holds, get this encoding.
pub(super) struct Rule {
    /// `None`: of any kind.
    pub part: Option<Part>,
    pub when: &'static [When],
    pub to: &'static str,
}

/// What recipes look at, of the model as a whole.
#[derive(Clone, Debug, Default)]
pub(super) struct Facts {
    pub layers: usize,
    pub heads: usize,
    pub key_heads: usize,
    pub experts: usize,
    pub large: bool,
    /// Whether there are column weights.
    pub weights: bool,
}

/// A tensor, and which of its kind it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub part: Part,
    pub number: usize,
    pub of: usize,
    pub stack: bool,
}

/// The rules that a file follows.
pub(super) struct Recipe {
    pub base: &'static dyn Codec,
    pub rules: &'static [Rule],
    /// What `general.file_type` says, where there is a number for it; for people, not for readers.
    pub file_type: Option<u32>,
}

/// An encoding of activations and one of exact numbers: they have encoders, but no file has matrices in them.
const NOT_FOR_FILES: &[&str] = &["q8_k", "f64"];

/// Below this many bits a weight, the output matrix gets more.
const HEAD_BITS: f64 = 6.0;

/// How kinds are told by names; the first match counts, after output and embedding.
const PARTS: &[(&str, Part)] = &[
    ("attn_qkv.weight", Part::Values),
    ("attn_kv_b.weight", Part::Values),
    ("attn_v.weight", Part::Values),
    ("attn_k.weight", Part::Keys),
    ("attn_output.weight", Part::AttentionOutput),
    ("ffn_down", Part::Down),
];

/// Models that llama.cpp calls 70B: architecture and layers.
const LARGE: &[(&str, usize)] = &[("llama", 80), ("qwen2", 80), ("deci", 80), ("olmo", 80), ("jais2", 68)];

impl Recipe {
    /// The recipe for a target.
    ///
    /// # Errors
    /// [`Kind::Usage`] if there is none of that name, an encoding of it has no encoder, or it needs column weights and
    /// there are none.
    pub fn find(target: &Target, weights: bool, codecs: &Registry) -> Result<Self, Error> {
        match target {
            Target::Encoding(name) => {
                let base = writable(name, codecs)?;
                let file_type = FILE_TYPES.iter().find(|(name, _)| *name == base.spec().name);
                let rules = if bits(base.spec()) < HEAD_BITS { recipes::HEAD } else { &[] };
                Ok(Self { base, rules, file_type: file_type.map(|(_, number)| *number) })
            }
            Target::FileType(name) => {
                let row = Row::find(name)?;
                if row.needs_weights && !weights {
                    let what = format!("file type: `{name}` expects column weights (an imatrix), found none");
                    return Err(Error::new(Kind::Usage, what));
                }
                let base = named(row.base, codecs)?;
                Ok(Self { base, rules: row.rules, file_type: Some(row.number) })
            }
        }
    }

    /// The first rule that holds.
    pub fn rule(&self, facts: &Facts, place: &Place) -> Option<&'static Rule> {
        let holds = |rule: &&Rule| {
            rule.part.is_none_or(|part| part == place.part)
                && rule.when.iter().all(|when| when.holds(facts, place))
        };
        self.rules.iter().find(holds)
    }
}

impl When {
    fn holds(self, facts: &Facts, place: &Place) -> bool {
        let (i, n) = (place.number, place.of);
        match self {
            Self::First(count) => i < count,
            Self::FirstPart(parts) => i < n / parts,
            Self::EndsAndThirds => i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2,
            Self::SharedKeys => facts.key_heads > 0 && facts.heads / facts.key_heads >= 4,
            Self::Experts(count) => facts.experts == count,
            Self::Large => facts.large,
            Self::Weights(there) => facts.weights == there,
            Self::Stack => place.stack,
        }
    }
}

impl Facts {
    /// Reads them from the keys of a GGUF file.
    pub fn new(entries: &[Entry], weights: bool) -> Self {
        let get = |key: &str| entries.iter().find(|e| e.key == key).map(|e| &e.value);
        let architecture = match get("general.architecture") {
            Some(Value::Text(name)) => name.as_str(),
            _ => "",
        };
        let int = |key: &str| match get(&format!("{architecture}.{key}")) {
            Some(Value::Int(n)) => usize::try_from(*n).ok(),
            Some(Value::Ints(list)) => list.first().and_then(|n| usize::try_from(*n).ok()),
            _ => None,
        };
        let (layers, heads) = (int("block_count").unwrap_or(0), int("attention.head_count").unwrap_or(0));
        let key_heads = int("attention.head_count_kv").unwrap_or(heads);
        let large =
            LARGE.contains(&(architecture, layers)) && (architecture != "llama" || heads != key_heads);
        Self { layers, heads, key_heads, experts: int("expert_count").unwrap_or(0), large, weights }
    }

    /// What recipes look at, of each matrix. `names` and whether they are stacks, in any order.
    pub fn places(&self, matrices: &[(&str, bool)], tied: bool) -> Vec<Place> {
        let mut order: Vec<usize> = (0..matrices.len()).collect();
        order.sort_by_key(|&i| (layer(matrices[i].0), matrices[i].0)); // what has no layer comes first
        let part = |name: &str| part(name, tied);
        let values = matrices.iter().filter(|(name, _)| part(name) == Part::Values).count();
        let mut seen: HashMap<Part, usize> = HashMap::new();
        let mut places: Vec<_> = vec![None; matrices.len()];
        for i in order {
            let (name, stack) = matrices[i];
            let part = part(name);
            let count = seen.entry(part).or_default();
            let number = match layer(name) {
                // Where some layers have experts and others none, counting would not tell the layer.
                Some(layer) if self.experts > 1 && part == Part::Down => layer,
                _ => *count,
            };
            *count += 1;
            let of = if part == Part::Values { values } else { self.layers };
            places[i] = Some(Place { part, number, of, stack });
        }
        places.into_iter().flatten().collect()
    }
}

fn part(name: &str, tied: bool) -> Part {
    match name {
        "output.weight" => Part::Head,
        "token_embd.weight" | "per_layer_token_embd.weight" if tied => Part::Head,
        "token_embd.weight" | "per_layer_token_embd.weight" => Part::Embedding,
        _ => PARTS.iter().find(|(text, _)| name.contains(text)).map_or(Part::Other, |(_, part)| *part),
    }
}

/// `blk.3.attn_q.weight` -> 3
fn layer(name: &str) -> Option<usize> {
    name.strip_prefix("blk.")?.split_once('.')?.0.parse().ok()
}

/// The encoding of that name, if it can be written to a GGUF file.
///
/// # Errors
/// [`Kind::Usage`] if not.
pub(super) fn writable(name: &str, codecs: &Registry) -> Result<&'static dyn Codec, Error> {
    let writable = |codec: &&dyn Codec| {
        let spec = codec.spec();
        codec.encoder().is_some() && spec.gguf.is_some() && !NOT_FOR_FILES.contains(&spec.name)
    };
    let name = name.to_ascii_lowercase();
    if let Some(codec) = codecs.by_name(&name).filter(writable) {
        return Ok(codec);
    }
    let found = match codecs.by_name(&name) {
        Some(_) => format!("`{name}`, which can only be read"),
        None => format!("`{name}`"),
    };
    let known: Vec<_> = codecs.iter().filter(writable).map(|codec| codec.spec().name).collect();
    Err(Error::new(Kind::Usage, format!("encoding: expected one of {}, found {found}", known.join(", "))))
}

/// The encoding of that name.
///
/// # Errors
/// [`Kind::Usage`] if it is not registered.
pub(super) fn named(name: &str, codecs: &Registry) -> Result<&'static dyn Codec, Error> {
    codecs.by_name(name).ok_or_else(|| {
        let what = format!("encoding: `{name}` is needed for some tensors, but is not registered");
        Error::new(Kind::Usage, what)
    })
}

fn bits(spec: &Spec) -> f64 {
    spec.block_bytes as f64 * 8.0 / spec.block_len as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_that_cannot_be_written_is_refused_with_those_that_can() {
        let message = |name| writable(name, &Registry::default()).err().unwrap().to_string();
        assert!(message("iq1_s").ends_with("found `iq1_s`, which can only be read"), "{}", message("iq1_s"));
        assert!(message("q8_k").contains("expected one of f32, f16, bf16, q4_0"), "{}", message("q8_k"));
        assert!(message("q9_9").ends_with("found `q9_9`"));
        assert_eq!(writable("Q4_K", &Registry::default()).unwrap().spec().name, "q4_k");
    }

    #[test]
    fn a_recipe_that_needs_column_weights_is_refused_without() {
        let find = |weights| {
            Recipe::find(&Target::FileType("Q2_K_S".into()), weights, &Registry::default())
                .map(|r| r.file_type)
        };
        assert_eq!(find(true).unwrap(), Some(21));
        assert!(find(false).unwrap_err().to_string().contains("expects column weights"));
    }

    #[test]
    fn matrices_are_numbered_by_layer_whatever_their_order() {
        let names = ["output.weight", "blk.10.attn_v.weight", "token_embd.weight", "blk.2.attn_v.weight"];
        let matrices: Vec<_> = names.iter().map(|name| (*name, false)).collect();
        let places = Facts { layers: 12, ..Facts::default() }.places(&matrices, false);
        let got: Vec<_> = places.iter().map(|p| (p.part, p.number, p.of)).collect();
        let (head, embedding) = ((Part::Head, 0, 12), (Part::Embedding, 0, 12));
        assert_eq!(got, [head, (Part::Values, 1, 2), embedding, (Part::Values, 0, 2)]);
    }
}
