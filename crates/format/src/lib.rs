//! Containers: a path -> metadata and encoded tensors, in canonical names.
//!
//! Nothing above this crate knows a container. Metadata keys are those of GGUF without the architecture's prefix
//! (`block_count`, `attention.head_count`, `rope.freq_base`, ...; `keys.rs` lists what is added), tensor names are
//! `embed`, `norm`, `head`, `layer.3.attn.q`, ... (`names.rs` lists them), and weights have one meaning whatever file
//! they come from: norm weights are the factor itself, experts are stacked `[E, N, K]`, decays of recurrent layers are
//! `-exp(A_log)`.
#![deny(unsafe_code)]

mod awq;
mod bitnet;
mod checkpoint;
mod compressed;
mod directory;
mod error;
mod exl2;
mod exl3;
mod fp8;
pub mod gguf;
mod gpt_oss;
mod gptq;
mod hf_config;
mod keys;
mod map;
mod metadata;
mod mlx;
mod modelopt;
mod mxfp4;
mod names;
mod partial;
mod prism;
mod repack;
mod replace;
pub mod safetensors;
mod scheme;
mod ternary;

pub use checkpoint::{Broken, Checkpoint, TokenizerSource};
pub use error::{Error, Problem};
pub use map::map as map_file;
pub use metadata::{Metadata, Value};
pub use names::gguf_name;
pub use partial::{Key, Partial};
pub use replace::replace;

use nibble_quant::Registry;
use nibble_tensor::Bytes;
use std::path::Path;

/// A kind of file or directory that holds a model.
pub trait Container: Sync {
    /// Its name in reports.
    fn name(&self) -> &'static str;

    /// What it looks like and which encodings it holds, in a few words.
    fn about(&self) -> &'static str;

    /// Whether `path` is one, by its content: `head` holds the first bytes (up to 16) if it is a file.
    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool;

    /// Opens it.
    ///
    /// # Errors
    /// One that names file, key or tensor, what was expected and what was found.
    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error>;
}

/// Every container. The first that recognizes a path opens it.
pub static CONTAINERS: &[&dyn Container] = &[
    &gguf::Gguf,
    &mlx::Mlx,
    &exl2::Exl2,
    &exl3::Exl3,
    &gptq::Gptq,
    &awq::Awq,
    &compressed::CompressedTensors,
    &fp8::Fp8,
    &mxfp4::Mxfp4,
    &bitnet::BitNet,
    &modelopt::ModelOpt,
    &safetensors::Safetensors,
];

/// Choices that a file may leave open.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// What tensor type 42 means in a GGUF file.
    pub type_42: Type42,
    /// Bytes that matrices may take which must be written anew to be read; any number if `None`.
    pub unpack_budget: Option<u64>,
    /// Whether what is wrong with a single tensor is kept in [`Checkpoint::broken`] rather than the end of opening.
    pub keep_broken: bool,
}

/// Two publishers gave GGUF tensor type 42 to two block layouts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type42 {
    /// Found out from tensor offsets and the file's length; a file that fits both or neither is refused.
    #[default]
    Detect,
    /// Blocks of 64 numbers in 18 bytes (`q2_0`).
    Blocks64,
    /// Blocks of 128 numbers in 34 bytes (`pq2_0`).
    Blocks128,
}

/// Opens a model: a GGUF file (its first shard if it is split), or a directory with `config.json` and safetensors.
///
/// Files are mapped, not read: see [`Checkpoint`].
///
/// # Errors
/// One that names file, key or tensor, what was expected and what was found.
pub fn open(path: &Path, codecs: &Registry) -> Result<Checkpoint, Error> {
    open_with(path, codecs, &OpenOptions::default())
}

/// [`open`] with choices.
///
/// # Errors
/// As [`open`].
pub fn open_with(path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
    let head = head(path)?;
    for container in CONTAINERS {
        if container.recognizes(path, head.as_deref()) {
            return container.open(path, codecs, options);
        }
    }
    let found = match head {
        Some(head) if head.get(8) == Some(&b'{') => {
            "a safetensors file alone; open the directory it is in".into()
        }
        Some(head) if head.is_empty() => "an empty file".into(),
        Some(head) => format!("a file that starts with `{}`", head[..head.len().min(8)].escape_ascii()),
        None => "a directory without config.json".into(),
    };
    Err(Problem::expected("a GGUF file, or a directory with config.json and safetensors", found)
        .at_path(path))
}

/// Opens a GGUF file that is in memory, such as a built-in model. `name` is for messages.
///
/// # Errors
/// As [`open`].
pub fn open_bytes(bytes: Bytes, name: &str, codecs: &Registry) -> Result<Checkpoint, Error> {
    gguf::open_bytes(bytes, Path::new(name), codecs, &OpenOptions::default())
}

/// The first bytes of a file, `None` for a directory.
fn head(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    use std::io::Read;
    let io = |error| Problem::Io(error).at_path(path);
    if std::fs::metadata(path).map_err(io)?.is_dir() {
        return Ok(None);
    }
    let mut head = Vec::new();
    map::open(path)?.take(16).read_to_end(&mut head).map_err(io)?;
    Ok(Some(head))
}
