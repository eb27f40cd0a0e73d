//! Architectures, one file each: config and weights -> graph. No device, no container, no encoding.
//!
//! [`build`] finds the architecture of a checkpoint, reads and checks its hyperparameters and lets the architecture
//! write its data flow. Every weight is asked for with the shape it must have, and a weight that the flow does not
//! use is refused: a file with an extra norm would otherwise load and answer nonsense.
#![forbid(unsafe_code)]

mod bitnet;
mod blocks;
mod config;
mod error;
mod gemma2;
mod gemma3;
mod gpt_oss;
mod llama;
mod qwen2;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod rope;
mod weights;

pub use config::{Config, Defaults, Delta, Experts, LayerKind};
pub use error::{Error, Problem};
pub use rope::{RopeConfig, Scaling, yarn_magnitude};
pub use weights::Weights;

use nibble_format::Checkpoint;
use nibble_graph::Graph;

/// One architecture: what files call it, what they leave out, and its data flow.
pub struct Architecture {
    /// Names in [`Checkpoint::architecture`].
    pub names: &'static [&'static str],
    /// Hyperparameters for files that do not say them.
    pub defaults: Defaults,
    /// Writes the data flow from tokens to logits.
    pub build: fn(&mut Graph, &Config, &Weights<'_>) -> Result<(), Problem>,
}

/// Every architecture.
pub static ARCHITECTURES: &[&Architecture] = &[
    &bitnet::BITNET,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &gpt_oss::GPT_OSS,
    &llama::LLAMA,
    &qwen2::QWEN2,
    &qwen3::QWEN3,
    &qwen35::QWEN35,
    &qwen3moe::QWEN3MOE,
];

/// A model that a backend can compile.
#[derive(Clone, Debug)]
pub struct Model {
    /// From tokens `[T]` to logits `[W, V]`, the first output.
    pub graph: Graph,
    /// Its hyperparameters.
    pub config: Config,
}

/// Builds the graph of a checkpoint.
///
/// # Errors
/// [`Problem::Architecture`] for one that is not in [`ARCHITECTURES`]; missing or contradicting hyperparameters;
/// a tensor that is missing, has another shape or is not used; a graph that does not fit together.
pub fn build(checkpoint: &Checkpoint) -> Result<Model, Error> {
    build_model(checkpoint).map_err(|problem| problem.at(&checkpoint.path))
}

fn build_model(checkpoint: &Checkpoint) -> Result<Model, Problem> {
    let name = checkpoint.architecture.as_str();
    let architecture = ARCHITECTURES.iter().find(|a| a.names.contains(&name));
    let architecture =
        architecture.ok_or_else(|| Problem::Architecture { found: name.into(), known: known() })?;
    if let Some(name) = checkpoint.unused.first() {
        return Err(Problem::Unused { name: name.clone() });
    }
    let config = Config::read(checkpoint, &architecture.defaults)?;
    let weights = Weights::new(&checkpoint.tensors).rotated_in(config.rotation_block);
    let mut graph = Graph::default();
    (architecture.build)(&mut graph, &config, &weights)?;
    weights.all_used(&graph, config.layers)?;
    Ok(Model { graph, config })
}

/// The names of all architectures, sorted.
fn known() -> Vec<&'static str> {
    let mut names: Vec<_> = ARCHITECTURES.iter().flat_map(|a| a.names).copied().collect();
    names.sort_unstable();
    names
}
