//! Requests -> tokens: batches, pages of keys and values, prefix reuse. No clock, no sockets, no async.
//!
//! An [`Engine`] owns a compiled plan. Callers [`submit`](Engine::submit) requests and call
//! [`step`](Engine::step) until nothing is left; every step runs the decoding sequences with one row each and fills
//! the rest of its rows with prompts. What a sequence says does not depend on who shared its steps.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod pages;
mod request;
mod score;
mod states;
mod text;
mod trace;

pub use engine::Engine;
pub use error::Error;
pub use request::{Event, FinishReason, Request, RequestId, Usage};
