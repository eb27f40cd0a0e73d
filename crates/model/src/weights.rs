//! Weights by canonical name, each with the shape that whoever asks expects.

use crate::Problem;
use nibble_graph::{Graph, Linear, Rotation, Weight};
use nibble_quant::Encoded;
use nibble_tensor::Shape;
use std::collections::{BTreeMap, BTreeSet};

/// The tensors of a checkpoint, or those of one of its layers.
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    tensors: &'a BTreeMap<String, Encoded>,
    prefix: String,
    rotation_block: usize,
}

impl<'a> Weights<'a> {
    /// All tensors.
    pub fn new(tensors: &'a BTreeMap<String, Encoded>) -> Self {
        Self { tensors, prefix: String::new(), rotation_block: 1 }
    }

    /// The block of the Hadamard transform that rotated matrices are in.
    pub fn rotated_in(self, block: usize) -> Self {
        Self { rotation_block: block, ..self }
    }

    /// The tensors of one layer, whose names then go without `layer.N.`.
    pub fn layer(&self, layer: usize) -> Self {
        Self { prefix: format!("layer.{layer}."), ..self.clone() }
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

    /// A matrix `[n, k]` with everything beside it: `.order` `[K']`, `.rotate` `[K']`, `.part.N` `[n, Ki]` instead of the
    /// matrix, `.unrotate` `[N']`, `.scale` (`[1]` or `[n]`) and `.bias` (`[n]`), where the file has them. A rotation's
    /// matrix may have more rows and columns than asked for: they fill up its blocks.
    ///
    /// # Errors
    /// [`Problem::MissingTensor`], [`Problem::Shape`]
    pub fn linear(&self, name: &str, [n, k]: [usize; 2]) -> Result<Linear, Problem> {
        let length = |w: &Weight| w.data.shape().elements();
        let order = self.any_vector(&format!("{name}.order"))?;
        let wide = self.find(&format!("{name}.rotate")).map_or(k, |gain| gain.shape().elements());
        let order = if order.is_none() && wide > k { Some(self.filled_up(name, k, wide)?) } else { order };
        let columns = order.as_ref().map_or(k, length);
        let unrotate = self.any_vector(&format!("{name}.unrotate"))?;
        let part = self.find(&format!("{name}.part.0")).map_or(n, |part| part.shape().rows());
        let rows = unrotate.as_ref().map_or(part, length).max(n);
        let rotation = |gain: Weight| Rotation { gain, block: self.rotation_block };
        let (scale, bias) = (format!("{name}.scale"), format!("{name}.bias"));
        let scale = match self.find(&scale) {
            Some(data) if data.shape().dims() == [1] => Some(self.get(&scale, [1])?),
            Some(_) => Some(self.get(&scale, [n])?),
            None => None,
        };
        Ok(Linear {
            order,
            rotate: self.optional(&format!("{name}.rotate"), [columns])?.map(rotation),
            parts: self.parts(name, [rows, columns])?,
            unrotate: unrotate.map(rotation),
            outputs: (rows > n).then_some(n),
            scale,
            bias: self.optional(&bias, [n])?,
        })
    }

    /// Whether there is a matrix of that name, in one or in parts.
    pub fn has_matrix(&self, name: &str) -> bool {
        self.has(name) || self.has(&format!("{name}.part.0"))
    }

    /// The rotation of what is looked up in, or multiplied by, a matrix of `width` columns.
    ///
    /// # Errors
    /// [`Problem::Shape`]
    pub fn rotation(&self, name: &str, width: usize) -> Result<Option<Rotation>, Problem> {
        Ok(self.optional(name, [width])?.map(|gain| Rotation { gain, block: self.rotation_block }))
    }

    fn parts(&self, name: &str, [n, k]: [usize; 2]) -> Result<Vec<Weight>, Problem> {
        let part = |i: usize| self.find(&format!("{name}.part.{i}"));
        let widths: Vec<usize> = (0..).map_while(part).map(|data| data.shape().row_len()).collect();
        if widths.is_empty() {
            return Ok(vec![self.get(name, [n, k])?]);
        }
        let found: usize = widths.iter().sum();
        if found != k {
            let name = format!("{}{name}", self.prefix);
            return Err(Problem::Shape {
                name,
                expected: format!("[{n}, {k}]"),
                found: format!("[{n}, {found}]"),
            });
        }
        let part = |(i, &width): (usize, &usize)| self.get(&format!("{name}.part.{i}"), [n, width]);
        widths.iter().enumerate().map(part).collect()
    }

    /// The order of `k` columns and of as many zeros as fill up `wide` of them.
    fn filled_up(&self, name: &str, k: usize, wide: usize) -> Result<Weight, Problem> {
        let name = format!("{}{name}.order", self.prefix);
        if wide - k >= self.rotation_block {
            let (expected, found) = (format!("[{k}], filled up to a block"), format!("[{wide}]"));
            return Err(Problem::Shape { name, expected, found });
        }
        let column = |i: usize| if i < k { i as f32 } else { -1.0 };
        let bytes: Vec<u8> = (0..wide).flat_map(|i| column(i).to_le_bytes()).collect();
        let data = Encoded::new(&name, Shape::from([wide]), nibble_quant::codec("f32"), bytes.into());
        let data = data.map_err(|e| Problem::Shape {
            name: name.clone(),
            expected: format!("[{wide}]"),
            found: e.to_string(),
        })?;
        Ok(Weight::new(name, data))
    }

    fn optional<const N: usize>(&self, name: &str, shape: [usize; N]) -> Result<Option<Weight>, Problem> {
        self.has(name).then(|| self.get(name, shape)).transpose()
    }

    /// A vector as long as it is.
    fn any_vector(&self, name: &str) -> Result<Option<Weight>, Problem> {
        self.find(name).map(|data| self.get(name, [data.shape().elements()])).transpose()
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
