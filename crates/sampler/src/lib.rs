//! Logits to a token, from a seed.
//!
//! A [`Sampler`] belongs to one sequence. It changes the logits by its [`SamplerParams`] in a stated order and draws a token
//! with a number that depends on the seed and on how many tokens came before, and on nothing else: neither batching
//! nor saving and restoring changes a draw. Probabilities are integers (`share`), so a device that draws itself (by a [`Draw`])
//! takes the same token of the same logits. After [`Sampler::new`] nothing is allocated for a token.
//!
//! ```
//! use nibble_sampler::{SamplerParams, Sampler};
//! let mut sampler = Sampler::new(SamplerParams { temperature: 0.0, ..SamplerParams::default() }, 4)?;
//! let token = sampler.sample(&mut [0.5, 2.0, 2.0, -1.0])?;
//! assert_eq!(token, 1); // greedy: the largest, and of equals the lowest id
//! sampler.accept(token);
//! # Ok::<(), nibble_sampler::Error>(())
//! ```

#![forbid(unsafe_code)]

mod candidates;
mod draw;
mod dry;
mod error;
mod history;
mod logprobs;
mod params;
mod random;
mod sampler;
mod share;

pub use draw::Draw;
pub use dry::Dry;
pub use error::{Error, Result};
pub use logprobs::{log_sum_exp, top_logprobs};
pub use params::{SamplerParams, Stage, default_order, parse_order};
pub use random::{GOLDEN, uniform};
pub use sampler::Sampler;
pub use share::{EXP2, LOG2_E};
