//! Containers: a path -> metadata and encoded tensors, in canonical names.
//!
//! Nothing above this crate knows a container. Metadata keys are those of GGUF without the architecture's prefix
//! (`block_count`, `attention.head_count`, `rope.freq_base`, ...), tensor names are `embed`, `norm`, `head`,
//! `layer.3.attn.q`, ... (`names.rs` lists them), and weights have one meaning whatever file they come from: norm
//! weights are the factor itself, experts are stacked `[E, N, K]`, decays of recurrent layers are `-exp(A_log)`.

mod metadata;

pub use metadata::{Metadata, Value};

use nibble_quant::Encoded;
use nibble_tensor::Bytes;
use std::{collections::BTreeMap, path::PathBuf};

/// A model as it lies on disk, in canonical names.
#[derive(Debug)]
pub struct Checkpoint {
    /// Where it was opened.
    pub path: PathBuf,
    /// The container's name: `gguf`, `safetensors`.
    pub container: &'static str,
    /// The architecture's canonical name, as GGUF has it: `llama`, `qwen2`, `qwen3moe`, `gemma2`, `qwen35`.
    pub architecture: String,
    /// Hyperparameters and facts, in canonical keys.
    pub metadata: Metadata,
    /// Weights by canonical name.
    pub tensors: BTreeMap<String, Encoded>,
    /// Where the tokenizer is described.
    pub tokenizer: TokenizerSource,
    /// The chat template's source.
    pub chat_template: Option<String>,
}

/// The description of a tokenizer.
#[derive(Clone, Debug)]
pub enum TokenizerSource {
    /// In the metadata, as `tokenizer.ggml.*`.
    Metadata,
    /// As Hugging Face files.
    Json {
        /// `tokenizer.json`
        tokenizer: Bytes,
        /// `tokenizer_config.json`
        config: Option<Bytes>,
    },
    /// Not there.
    None,
}
