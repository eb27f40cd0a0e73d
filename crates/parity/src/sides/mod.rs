//! The kinds of sides, one file each.

pub mod device;
pub mod kl_base;
pub mod llama_cpp;
pub mod logits_file;
pub mod mlx_lm;
pub mod model_file;
mod python;
pub mod record;
mod stored;
pub mod transformers;
