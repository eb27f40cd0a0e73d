//! Measuring: who is measured, how much memory it takes, how long it takes, and what its device can do at most.
//!
//! Every figure is for a reader who does not trust it, so each carries what it was made from ([`Identity`]), how often
//! it was taken and how far the takes lie apart ([`Summary`]), and the limit of the device beside it.
#![forbid(unsafe_code)]

mod bench;
mod bounds;
mod case;
mod cold;
mod footprint;
mod hash;
mod html;
mod identity;
mod limits;
mod modes;
mod peers;
mod report;
mod soak;
mod stats;
mod table;
mod take;
pub mod text;
mod work;

pub use bench::{Bench, Contender, Progress};
pub use case::{Case, Lists, Task};
pub use footprint::{Footprint, footprint, reset_peak};
pub use hash::{FileHash, Hashing, hash_files};
pub use identity::{Build, CodecShare, Identity};
pub use limits::{DeviceLimits, bandwidth_now, share};
pub use modes::{ModeRow, modes, modes_table};
pub use peers::{PEERS, Peer, Setup, Taken, peer};
pub use report::{Against, Bound, PeerReport, Report, Row};
pub use soak::{Soak, soak, soak_table, soak_verdict};
pub use stats::{Summary, bootstrap_median, median, ratios};
pub use work::{Experts, KvWork, Work};
