//! Proof that a model computes what it should: parity between two sides, perplexity, the same answer whatever it runs
//! on and beside, and no framework inside.
//!
//! A [`Side`] is whatever can say the logits of given tokens: a device of this program, another engine, a file. One file
//! each in `sides/`, listed in [`SIDES`]. [`compare`] runs the same tokens through two of them.
#![forbid(unsafe_code)]

mod agreement;
mod base_file;
mod bounds;
mod compare;
mod oracle;
mod perplexity;
mod prompts;
mod report;
mod same_answer;
mod scratch;
mod side;
mod sides;
mod sovereignty;
mod stats;
mod trace;
mod weights;

pub use agreement::{Agreement, Place};
pub use base_file::BaseFile;
pub use bounds::Bounds;
pub use compare::{
    Divergence as GreedyDivergence, Greedy, Progress, Report, Work, compare, context, prompts,
};
pub use perplexity::{Chunks, Cut, Divergence, Estimate, divergence, perplexity};
pub use prompts::{Text, default_texts, texts};
pub use same_answer::{Cell, DIMENSIONS, Dimension, Matrix, same_answer};
pub use side::{Form, Identity, Open, Opening, Precision, Prompt, Side, SideEntry, open};
pub use sides::{
    device::{Device, REFERENCE, exact},
    record::write as write_record,
};
pub use sovereignty::{Sovereignty, check as check_sovereignty};
pub use trace::{Parting, Sketch, Trace, TraceReport};
pub use weights::{WeightReport, Weights};

/// Every kind of side; the first that the user's words mean opens it.
pub static SIDES: &[&SideEntry] = &[
    &sides::device::ENTRY,
    &sides::llama_cpp::ENTRY,
    &sides::transformers::ENTRY,
    &sides::mlx_lm::ENTRY,
    &sides::kl_base::ENTRY,
    &sides::record::ENTRY,
    &sides::logits_file::ENTRY,
    &sides::model_file::ENTRY,
];
