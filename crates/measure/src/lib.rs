//! Measuring: who is measured, how much memory it takes, how long it takes, and what its device can do at most.
//!
//! Every figure is for a reader who does not trust it, so each carries what it was made from ([`Identity`]), how often
//! it was taken and how far the takes lie apart ([`Summary`]), and the limit of the device beside it.
#![forbid(unsafe_code)]

mod footprint;
mod hash;
mod identity;
mod limits;
mod stats;
mod work;

pub use footprint::{Footprint, footprint, reset_peak};
pub use hash::{FileHash, Hashing, hash_files};
pub use identity::{Build, CodecShare, Identity};
pub use limits::{DeviceLimits, bandwidth_now, share, sweep_caches};
pub use stats::{Summary, bootstrap_median, median, ratios};
pub use work::{Experts, KvWork, Work};
