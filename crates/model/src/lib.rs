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

use weights::{Survey, embedding_rows};

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
    let vocab = |hidden| embedding_rows(&checkpoint.tensors, hidden);
    let built = read(checkpoint, vocab).and_then(|(architecture, config)| {
        if let Some(name) = checkpoint.unused.first() {
            return Err(Problem::Unused { name: name.clone() });
        }
        let weights = Weights::new(&checkpoint.tensors).rotated_in(config.rotation_block);
        let mut graph = Graph::default();
        (architecture.build)(&mut graph, &config, &weights)?;
        weights.unused(&graph, config.layers).next().map_or(Ok(()), Err)?;
        Ok(Model { graph, config })
    });
    built.map_err(|problem| problem.at(&checkpoint.path))
}

/// Everything because of which no graph can be built, in the order of the data flow; what is wrong with the weights that a
/// checkpoint holds as broken goes without saying.
pub fn problems(checkpoint: &Checkpoint) -> Vec<Error> {
    let survey = Survey { known: checkpoint.broken.names.clone(), ..Survey::default() };
    // Without an embedding, the head or the keys may say how many tokens there are.
    let vocab = |hidden| {
        let head = checkpoint.tensors.get("head").map(|head| head.shape().rows());
        let said = || checkpoint.metadata.usize("vocab_size").ok();
        Ok(embedding_rows(&checkpoint.tensors, hidden).ok().or(head).or_else(said).unwrap_or(1))
    };
    let built = read(checkpoint, vocab).and_then(|(architecture, config)| {
        let weights = Weights::new(&checkpoint.tensors).rotated_in(config.rotation_block).surveyed(&survey);
        let mut graph = Graph::default();
        (architecture.build)(&mut graph, &config, &weights)?;
        Ok(weights.unused(&graph, config.layers).collect())
    });
    let unknown = checkpoint.unused.iter().map(|name| Problem::Unused { name: name.clone() });
    let mut problems: Vec<_> = survey.found.take();
    problems.extend(unknown);
    problems.extend(built.unwrap_or_else(|problem| vec![problem]));
    problems.into_iter().map(|problem| problem.at(&checkpoint.path)).collect()
}

/// The architecture of a checkpoint and its hyperparameters.
fn read(
    checkpoint: &Checkpoint,
    vocab: impl FnOnce(usize) -> Result<usize, Problem>,
) -> Result<(&'static Architecture, Config), Problem> {
    let name = checkpoint.architecture.as_str();
    let architecture = ARCHITECTURES.iter().find(|a| a.names.contains(&name));
    let architecture =
        architecture.ok_or_else(|| Problem::Architecture { found: name.into(), known: known() })?;
    Ok((architecture, Config::read(checkpoint, &architecture.defaults, vocab)?))
}

/// The names of all architectures, sorted.
fn known() -> Vec<&'static str> {
    let mut names: Vec<_> = ARCHITECTURES.iter().flat_map(|a| a.names).copied().collect();
    names.sort_unstable();
    names
}
