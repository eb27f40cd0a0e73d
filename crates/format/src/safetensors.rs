//! `safetensors`: a Hugging Face directory with plain weights: F32, F16 or BF16.

mod header;
mod write;

pub use header::{SafetensorsFile, TensorInfo};
pub use write::{NewTensor, head};

use crate::{
    Checkpoint, Container, Error, Metadata, OpenOptions, Problem, directory,
    hf_config::Config,
    scheme::{Module, Pieces, Scheme},
};
use nibble_quant::Registry;
use serde_json::Value as Json;
use std::path::Path;

/// The container.
pub(crate) struct Safetensors;

/// Nothing is packed.
struct Plain;

impl Container for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn about(&self) -> &'static str {
        "a directory with `config.json` and nothing packed: F32, F16, BF16"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        head.is_none() && path.join("config.json").is_file()
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let refuse = |what: String| Err(Problem::Unsupported(what).at("config.json"));
            match config.root.get("quantization_config") {
                None | Some(Json::Null) => Ok(Box::new(Plain)),
                Some(settings) => match settings.get("quant_method").and_then(Json::as_str) {
                    Some(other) => refuse(format!("quant_method {other:.60?} is not known")),
                    None => refuse("quantization_config without quant_method is not supported".into()),
                },
            }
        })
    }
}

impl Scheme for Plain {
    fn marks(&self) -> &'static [&'static str] {
        &[]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[]
    }

    fn pieces<'a>(&'a self, _module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        Ok(None)
    }
}

/// The canonical architecture and keys of a `config.json` and, if there is one, a `generation_config.json`.
///
/// # Errors
/// One that names the key whose value is not what it must be.
pub fn read_config(config: &[u8], generation: Option<&[u8]>) -> Result<(String, Metadata), Error> {
    let config = Config::parse(config)?;
    let metadata = config.metadata(generation)?;
    Ok((config.architecture, metadata))
}
