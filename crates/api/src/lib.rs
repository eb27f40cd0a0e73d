//! The public Rust surface: open a model, start an engine on a device, ask for text.
//!
//! This is the one crate that joins the registries of containers, codecs, architectures and devices.
//!
//! # Text
//! ```
//! use nibble_api::{Event, Model, Options, Request};
//!
//! # fn main() -> Result<(), nibble_api::Error> {
//! let model = Model::builtin()?; // or Model::open(path, &Registry::default())
//! let mut engine = model.start(&Options::default())?;
//! engine.submit(Request {
//!     prompt: model.encode("Once upon a time")?,
//!     max_tokens: Some(8),
//!     stop_tokens: model.stop_tokens(),
//!     ..Request::default()
//! })?;
//! let (mut text, mut events) = (String::new(), vec![]);
//! while !engine.is_idle() {
//!     engine.step(&mut events)?;
//!     for event in events.drain(..) {
//!         if let Event::Token { text: more, .. } | Event::Finished { text: more, .. } = event {
//!             text.push_str(&more);
//!         }
//!     }
//! }
//! assert!(!text.is_empty());
//! # Ok(())
//! # }
//! ```
//!
//! # An encoding of your own
//! A [`Codec`] says what a block of bytes means as small integers and scales; that is enough for every device to run it.
//! With an [`Encode`], [`quantize`] writes it too. This is `examples/custom_codec.rs`:
//! ```
#![doc = include_str!("../examples/custom_codec.rs")]
//! ```
#![forbid(unsafe_code)]

mod builtin;
mod check;
mod device;
mod error;
mod model;
mod quantize;
mod split;
mod trace;
mod vocab;

pub use builtin::builtin_bytes;
pub use device::{BACKENDS, BackendEntry, DeviceOptions, Found, present};
pub use error::{Error, Kind, Remedy};
pub use model::{Model, OpenOptions, Options, Placed, problems};
pub use quantize::{
    Errors, Importance, Inputs, MlxOptions, Note, Progress, QuantizeOptions, Summary, Target, TensorReport,
    quantize, quantize_to_mlx,
};
pub use trace::{OpTime, Trace};

pub use nibble_backend::{
    Activations, Backend, Category, Ceiling, Counts, Device, KvType, Limits, Memory, Numbers, PAGE_LEN, Plan,
    Sequence, Span, Step, Tracer, timed,
};
pub use nibble_backend_cpu::available_memory;
pub use nibble_backend_wgpu::{Cache, Tuning, kept as kept_on_gpu};
pub use nibble_chat::Message;
pub use nibble_engine::{Engine, Event, FinishReason, Request, RequestId, Usage};
pub use nibble_format::{
    Checkpoint, Type42, replace,
    safetensors::{NewTensor, head as safetensors_head},
};
pub use nibble_graph::{Graph, Label, Op as GraphOp, Rows as GraphRows, Tap};
pub use nibble_model::Config;
pub use nibble_quant::{
    Codec, Encode, Encoded, Group, Kind as CodecKind, Registry, Spec, Unpacked, decode_unpacked,
};
pub use nibble_sampler::{Draw, SamplerParams, log_sum_exp, parse_order};
pub use nibble_tokenizer::{EncodeOptions, Tokenizer};
