//! The public Rust surface: open a model, start an engine on a device, ask for text.
//!
//! This is the one crate that joins the registries of containers, codecs, architectures and devices.
#![forbid(unsafe_code)]

mod builtin;
mod device;
mod error;
mod model;
mod quantize;
mod vocab;

pub use device::{BACKENDS, BackendEntry, Open, available_memory};
pub use error::{Error, Kind};
pub use model::{Model, Options};
pub use quantize::{Note, Progress, QuantizeOptions, Summary, TensorReport, quantize};

pub use nibble_backend::{Activations, Backend, KvType, Limits, Memory, PAGE_LEN, Plan};
pub use nibble_chat::Message;
pub use nibble_engine::{Engine, Event, FinishReason, Request, RequestId, Usage};
pub use nibble_format::{Checkpoint, replace};
pub use nibble_graph::Graph;
pub use nibble_model::Config;
pub use nibble_quant::{Codec, Encode, Encoded, Group, Registry, Spec, Unpacked};
pub use nibble_sampler::{SamplerParams, parse_order};
pub use nibble_tokenizer::{EncodeOptions, Tokenizer};
