//! Weights by canonical name, each with the shape that whoever asks expects.

use crate::Problem;
use nibble_graph::{Graph, Linear, Rotation, Weight};
use nibble_quant::{Codec, Encoded, Kind, Spec};
use nibble_tensor::{Bytes, Shape};
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
};

/// The tensors of a checkpoint, or those of one of its layers.
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    tensors: &'a BTreeMap<String, Encoded>,
    prefix: String,
    rotation_block: usize,
    survey: Option<&'a Survey>,
}

/// What is wrong with weights, when all of it is to be known: whoever asks for a wrong one gets an empty one of the right
/// shape and goes on.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    /// Weights that are known to be wrong.
    pub known: BTreeSet<String>,
    /// What else is.
    pub found: RefCell<Vec<Problem>>,
}

/// An encoding of no bytes, whose numbers are all 0.
struct Absent;

impl Codec for Absent {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "absent", block_len: 1, block_bytes: 0, gguf: None }
    }

    fn kind(&self) -> Kind {
        Kind::Float
    }

    fn decode(&self, _block: &[u8], out: &mut [f32]) {
        out.fill(0.0);
    }

    fn decode_row(&self, _row: &[u8], out: &mut [f32]) {
        out.fill(0.0);
    }
}

impl<'a> Weights<'a> {
    /// All tensors.
    pub fn new(tensors: &'a BTreeMap<String, Encoded>) -> Self {
        Self { tensors, prefix: String::new(), rotation_block: 1, survey: None }
    }

    /// The block of the Hadamard transform that rotated matrices are in.
    pub fn rotated_in(self, block: usize) -> Self {
        Self { rotation_block: block, ..self }
    }

    /// The same, with problems told to `survey`.
    pub(crate) fn surveyed(self, survey: &'a Survey) -> Self {
        Self { survey: Some(survey), ..self }
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
            let problem = Problem::MissingTensor { name: full.clone(), expected: format!("{shape:?}") };
            return self.stand_in(full, &shape, problem);
        };
        if data.shape().dims() != shape {
            let (expected, found) = (format!("{shape:?}"), data.shape().to_string());
            let problem = Problem::Shape { name: full.clone(), expected, found };
            return self.stand_in(full, &shape, problem);
        }
        Ok(Weight::new(full, data.clone()))
    }

    /// An empty weight, once the survey knows of the problem.
    ///
    /// # Errors
    /// The problem, if there is no survey.
    fn stand_in(&self, name: String, shape: &[usize], problem: Problem) -> Result<Weight, Problem> {
        let data = Shape::new(shape).filter(|shape| shape.elements() > 0);
        let data = data.and_then(|shape| Encoded::new(&name, shape, &Absent, Bytes::new()).ok());
        let (Some(survey), Some(data)) = (self.survey, data) else { return Err(problem) };
        // What belongs to a weight that is known to be wrong is not wrong once more.
        let belongs = |known: &String| {
            name.strip_prefix(known.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        if !survey.known.iter().any(belongs) {
            survey.found.borrow_mut().push(problem);
        }
        Ok(Weight::new(name, data))
    }

    /// A matrix `[n, k]` with everything beside it: `.order` `[K']`, `.rotate` `[K']`, `.part.N` `[n, Ki]` instead of the
    /// matrix, `.unrotate` `[N']`, `.scale` (`[1]` or `[n]`) and `.bias` (`[n]`), where the file has them. A rotation's
    /// matrix may have more rows and columns than asked for: they fill up its blocks.
    ///
    /// # Errors
    /// [`Problem::MissingTensor`], [`Problem::Shape`]
    pub fn linear(&self, name: &str, [n, k]: [usize; 2]) -> Result<Linear, Problem> {
        self.whole_linear(name, [n, k]).or_else(|problem| {
            let matrix = self.stand_in(format!("{}{name}", self.prefix), &[n, k], problem)?;
            Ok(Linear { parts: vec![matrix], ..Linear::default() })
        })
    }

    fn whole_linear(&self, name: &str, [n, k]: [usize; 2]) -> Result<Linear, Problem> {
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

    /// The tensors of the model proper that are left over: those of its layers, the embedding, the last norm and the head.
    /// Others (a draft head behind the last layer, say) do not change what the graph computes.
    pub(crate) fn unused(&self, graph: &Graph, layers: usize) -> impl Iterator<Item = Problem> {
        let used: BTreeSet<&str> = graph.weights.iter().map(|w| w.name.as_str()).collect();
        let counts = move |name: &str| match name.strip_prefix("layer.").and_then(|rest| rest.split_once('.'))
        {
            Some((layer, _)) => layer.parse().is_ok_and(|layer: usize| layer < layers),
            None => {
                ["embed", "norm", "head"].iter().any(|&n| name == n || name.starts_with(&format!("{n}.")))
            }
        };
        let left = self.tensors.keys().filter(move |name| counts(name) && !used.contains(name.as_str()));
        left.map(|name| Problem::Unused { name: name.clone() })
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
