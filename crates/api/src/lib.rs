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
//! With an [`Encode`], [`quantize`] writes it too.
//! ```
//! use nibble_api::{Codec, CodecKind, Encode, Group, Registry, Spec, Unpacked, decode_unpacked};
//! use nibble_api::{Event, Model, Options, QuantizeOptions, Request, quantize};
//!
//! /// 32 signed bytes, then their scale.
//! struct Mine;
//!
//! impl Codec for Mine {
//!     fn spec(&self) -> &'static Spec {
//!         &Spec { name: "mine", block_len: 32, block_bytes: 36, gguf: Some(9001) }
//!     }
//!     fn kind(&self) -> CodecKind {
//!         CodecKind::Group32
//!     }
//!     fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
//!         let (codes, scale) = block.split_at(32);
//!         out.groups[0] = Group::symmetric(f32::from_le_bytes(scale.try_into().unwrap()));
//!         out.codes.iter_mut().zip(codes).for_each(|(code, &byte)| *code = byte as i8);
//!     }
//!     fn decode(&self, block: &[u8], out: &mut [f32]) {
//!         decode_unpacked::<32, 1>(self, block, out);
//!     }
//!     fn encoder(&self) -> Option<&dyn Encode> {
//!         Some(self)
//!     }
//! }
//!
//! impl Encode for Mine {
//!     fn encode_row(&self, row: &[f32], _importance: Option<&[f32]>, out: &mut [u8]) {
//!         for (row, out) in row.chunks(32).zip(out.chunks_mut(36)) {
//!             let scale = row.iter().fold(1e-30f32, |most, x| most.max(x.abs())) / 127.0;
//!             row.iter().zip(&mut *out).for_each(|(x, out)| *out = (x / scale).round() as i8 as u8);
//!             out[32..].copy_from_slice(&scale.to_le_bytes());
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let file = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../assets/story.gguf"));
//! # let path = std::env::temp_dir().join(format!("nibble-mine-{}.gguf", std::process::id()));
//! let mut codecs = Registry::default();
//! codecs.register(Mine)?;
//! let options = QuantizeOptions::encoding("mine");
//! quantize(file, &path, &options, &codecs, &mut |_| std::ops::ControlFlow::Continue(()))?;
//!
//! assert!(Model::open(&path, &Registry::default()).is_err(), "tensor type 9001 is yours alone");
//! let model = Model::open(&path, &codecs)?;
//! assert!(model.checkpoint.tensors.values().any(|tensor| tensor.name() == "mine"));
//! let mut engine = model.start(&Options::default())?;
//! engine.submit(Request { prompt: model.encode("Once")?, max_tokens: Some(3), ..Request::default() })?;
//! let mut events = vec![];
//! while !engine.is_idle() {
//!     engine.step(&mut events)?;
//! }
//! assert!(matches!(events.last(), Some(Event::Finished { .. })));
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]

mod builtin;
mod check;
mod device;
mod error;
mod model;
mod quantize;
mod trace;
mod vocab;

pub use builtin::builtin_bytes;
pub use device::{BACKENDS, BackendEntry, DeviceOptions, Found, present};
pub use error::{Error, Kind, Remedy};
pub use model::{Model, OpenOptions, Options};
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
pub use nibble_backend_wgpu::{Cache, Tuning};
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
