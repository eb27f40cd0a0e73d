//! Weights by canonical name, each with the shape that whoever asks expects.

use crate::Problem;
use nibble_graph::{Graph, Linear, Weight};
use nibble_quant::Encoded;
use nibble_tensor::Shape;
use std::collections::{BTreeMap, BTreeSet};

/// The tensors of a checkpoint, or those of one of its layers.
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    tensors: &'a BTreeMap<String, Encoded>,
    prefix: String,
}

impl<'a> Weights<'a> {
    /// All tensors.
    pub fn new(tensors: &'a BTreeMap<String, Encoded>) -> Self {
        Self { tensors, prefix: String::new() }
    }

    /// The tensors of one layer, whose names then go without `layer.N.`.
    pub fn layer(&self, layer: usize) -> Self {
        Self { tensors: self.tensors, prefix: format!("layer.{layer}.") }
    }

    /// Whether there is a tensor of that name.
    pub fn has(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    fn find(&self, name: &str) -> Option<&'a Encoded> {
        self.tensors.get(&format!("{}{name}", self.prefix))
    }

    /// The tensor of that name and shape.
    ///
    /// # Errors
    /// [`Problem::MissingTensor`], [`Problem::Shape`]
    pub fn get<const N: usize>(&self, name: &str, shape: [usize; N]) -> Result<Weight, Problem> {
        let full = format!("{}{name}", self.prefix);
        let Some(data) = self.find(name) else {
            return Err(Problem::MissingTensor { name: full, expected: format!("{shape:?}") });
        };
        if data.shape().dims() != shape {
            let (expected, found) = (format!("{shape:?}"), data.shape().to_string());
            return Err(Problem::Shape { name: full, expected, found });
        }
        Ok(Weight::new(full, data.clone()))
    }

    /// A matrix `[n, k]` with its `.scale` (`[1]` or `[n]`) and its `.bias` (`[n]`), where the file has them.
    ///
    /// # Errors
    /// [`Problem::MissingTensor`], [`Problem::Shape`]
    pub fn linear(&self, name: &str, [n, k]: [usize; 2]) -> Result<Linear, Problem> {
        let weight = self.get(name, [n, k])?;
        let (scale, bias) = (format!("{name}.scale"), format!("{name}.bias"));
        let scale = match self.find(&scale) {
            Some(data) if data.shape().dims() == [1] => Some(self.get(&scale, [1])?),
            Some(_) => Some(self.get(&scale, [n])?),
            None => None,
        };
        let bias = if self.has(&bias) { Some(self.get(&bias, [n])?) } else { None };
        Ok(Linear { weight, scale, bias })
    }

    /// All numbers of a vector, or `None` if there is no such tensor.
    ///
    /// # Errors
    /// [`Problem::Shape`] if it has not `len` numbers.
    pub fn vector(&self, name: &str, len: usize) -> Result<Option<Vec<f32>>, Problem> {
        if !self.has(name) {
            return Ok(None);
        }
        Ok(Some(self.get(name, [len])?.data.decode()))
    }

    /// Checks that no tensor of the model proper is left over: those of its layers, the embedding, the last norm and
    /// the head. Others (a draft head behind the last layer, say) do not change what the graph computes.
    pub(crate) fn all_used(&self, graph: &Graph, layers: usize) -> Result<(), Problem> {
        let used: BTreeSet<&str> = graph.weights.iter().map(|w| w.name.as_str()).collect();
        let counts = |name: &str| match name.strip_prefix("layer.").and_then(|rest| rest.split_once('.')) {
            Some((layer, _)) => layer.parse().is_ok_and(|layer: usize| layer < layers),
            None => {
                ["embed", "norm", "head"].iter().any(|&n| name == n || name.starts_with(&format!("{n}.")))
            }
        };
        let left = self.tensors.keys().find(|name| counts(name) && !used.contains(name.as_str()));
        left.map_or(Ok(()), |name| Err(Problem::Unused { name: name.clone() }))
    }
}

/// `[V, D]` of the embedding: the vocabulary is what the file has rows for.
pub(crate) fn embedding_rows(tensors: &BTreeMap<String, Encoded>, hidden: usize) -> Result<usize, Problem> {
    let expected = format!("[V, {hidden}]");
    let Some(embed) = tensors.get("embed") else {
        return Err(Problem::MissingTensor { name: "embed".into(), expected });
    };
    let shape: Shape = embed.shape();
    match *shape.dims() {
        [vocab, width] if width == hidden && vocab > 0 => Ok(vocab),
        _ => Err(Problem::Shape { name: "embed".into(), expected, found: shape.to_string() }),
    }
}
