//! What a benchmark found: plain data, from which every form of output is made.

use crate::{case::Case, footprint::Footprint, identity::Identity, limits::DeviceLimits, stats::Summary};
use serde::{Deserialize, Serialize};

/// A benchmark's findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The command that made it.
    pub command: String,
    /// Who was measured.
    pub identity: Identity,
    /// What its device can do at most.
    pub limits: Option<DeviceLimits>,
    /// How often each row was measured.
    pub repeats: usize,
    /// What ran before a row's first take and does not count.
    pub warmup: String,
    /// What was cold at the start of each take; `None` if takes follow each other warm.
    pub cold: Option<String>,
    /// Seconds to open the model and to reserve its memory.
    pub load_s: Summary,
    /// Others that were measured in turns.
    pub peers: Vec<PeerReport>,
    /// The rows.
    pub rows: Vec<Row>,
    /// What a reader should know, one sentence each.
    pub notes: Vec<String>,
}

/// Who was measured in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerReport {
    /// Its name.
    pub name: String,
    /// What it says of its version; `None` if it was never run or does not say.
    pub version: Option<String>,
    /// The program that ran.
    pub program: String,
    /// Further arguments that it was given.
    pub flags: Vec<String>,
}

/// A row of figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its name: `prompt 512`, `generate 128 at 512 x 4`.
    pub name: String,
    /// What was measured.
    pub case: Case,
    /// Tokens per second, all sequences together.
    pub tokens_per_s: Summary,
    /// The same, take by take.
    pub takes: Vec<f64>,
    /// Seconds until every sequence had its first token.
    pub first_token_s: Summary,
    /// Seconds of a step of steady generation; `None` for prompts.
    pub token_s: Option<Summary>,
    /// Tokens until generation was steady; `None` for prompts, and if too few were generated to say.
    pub tokens_until_steady: Option<usize>,
    /// Bytes that a step of generation must read, products that a prompt must make.
    pub work: f64,
    /// Which limit bounds the row.
    pub bound: Bound,
    /// That limit, per second; the bandwidth is the mean of its readings around the row.
    pub limit: Option<f64>,
    /// Bytes per second that the device could read just before the row and just after.
    pub bandwidth_around: Option<[f64; 2]>,
    /// The share of the limit that was reached.
    pub share_of_limit: Option<f64>,
    /// Products for each byte that must be read: where the row lies on the roofline.
    pub products_per_byte: f64,
    /// Products made per second.
    pub products_per_s: f64,
    /// Memory at the row's end.
    pub footprint: Option<Footprint>,
    /// Tokens of the prompts that were there already (the fill of rows at a depth), per take.
    pub cached_tokens: usize,
    /// Tokens drafted by speculation.
    pub drafted_tokens: usize,
    /// Of these, tokens accepted.
    pub accepted_tokens: usize,
    /// The same row of others.
    pub against: Vec<Against>,
}

/// What bounds a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Bytes read from memory.
    Memory,
    /// Products of 8-bit integers.
    Int8,
    /// Products of 32-bit floats.
    F32,
}

impl Bound {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Int8 => "int8",
            Self::F32 => "f32",
        }
    }
}

/// A row beside the same row of a peer, measured in turns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Against {
    /// The peer.
    pub peer: String,
    /// Its tokens per second.
    pub tokens_per_s: Summary,
    /// The same, take by take.
    pub takes: Vec<f64>,
    /// Ours divided by theirs, pair by pair.
    pub ratio: Summary,
}

/// A report of known numbers, for tests of what is made from reports.
#[cfg(test)]
pub(crate) fn sample() -> Report {
    use crate::{case::Task, hash::FileHash, identity::CodecShare};
    let summary = |takes: &[f64]| Summary::of(takes).expect("finite takes");
    let row = |task, tokens, depth, bound| Row {
        name: Case { task, tokens, depth, batch: 1 }.to_string(),
        case: Case { task, tokens, depth, batch: 1 },
        tokens_per_s: summary(&[19.0, 20.0, 21.0]),
        takes: vec![19.0, 20.0, 21.0],
        first_token_s: summary(&[0.05]),
        token_s: (task == Task::Decode).then(|| summary(&[0.05, 0.05])),
        tokens_until_steady: (task == Task::Decode).then_some(3),
        work: 1e9,
        bound,
        limit: Some(4e10),
        bandwidth_around: Some([3e10, 5e10]),
        share_of_limit: Some(0.5),
        products_per_byte: if task == Task::Decode { 2.0 } else { 500.0 },
        products_per_s: if task == Task::Decode { 4e10 } else { 2e11 },
        footprint: Some(Footprint { total: 1 << 20, own: 1 << 19, mapped: 1 << 19, peak: 2 << 20 }),
        cached_tokens: depth,
        drafted_tokens: 0,
        accepted_tokens: 0,
        against: vec![],
    };
    let mut rows = vec![
        row(Task::Prefill, 32, 0, Bound::Int8),
        row(Task::Decode, 16, 0, Bound::Memory),
        row(Task::Decode, 16, 8, Bound::Memory),
    ];
    rows[2].against.push(Against {
        peer: "llama.cpp".into(),
        tokens_per_s: summary(&[38.0, 40.0, 42.0]),
        takes: vec![38.0, 40.0, 42.0],
        ratio: summary(&[0.5, 0.5, 0.5]),
    });
    Report {
        command: "nibble bench model.gguf".into(),
        identity: Identity {
            model: "model.gguf".into(),
            sha256: "00ff".into(),
            files: vec![FileHash { name: "model.gguf".into(), bytes: 7, sha256: "00ff".into() }],
            architecture: "llama".into(),
            weights: 1000,
            codecs: vec![CodecShare { codec: "q4_0".into(), share: 1.0 }],
            bits_per_weight: 4.5,
            device: "A processor".into(),
            instructions: "avx512".into(),
            threads: 2,
            kv: "f16".into(),
            activations: "auto".into(),
            build: crate::Build::this(),
        },
        limits: Some(DeviceLimits {
            read_bytes_per_s: summary(&[4e10, 5e10]),
            int8_products_per_s: Some(summary(&[4e11])),
            f32_products_per_s: None,
        }),
        repeats: 3,
        warmup: "one whole take of each row".into(),
        cold: None,
        load_s: summary(&[0.25]),
        peers: vec![PeerReport {
            name: "llama.cpp".into(),
            version: Some("abc".into()),
            program: "llama-bench".into(),
            flags: vec![],
        }],
        rows,
        notes: vec!["a note with <angle> & \"quotes\"".into()],
    }
}
