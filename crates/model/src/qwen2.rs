//! Qwen 2 and 2.5: as Llama, with a bias on q, k and v.
//!
//! Source: Hugging Face transformers, `Qwen2ForCausalLM`.

use crate::{Architecture, Defaults, llama};

/// The biases come with the matrices, so the flow is the same.
pub(crate) const QWEN2: Architecture =
    Architecture { names: &["qwen2"], defaults: Defaults::PLAIN, build: llama::build };
