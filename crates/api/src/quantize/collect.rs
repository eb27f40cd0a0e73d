//! Measuring how much each column of a matrix matters: the squares of its inputs over a text.
//!
//! The graph's products are tapped, so any device and any architecture will do. Chunks are cut as llama.cpp's
//! `llama-imatrix` cuts them, each from an empty context, and only layers are looked at, so that figures compare.

use super::{imatrix, order::order, source::layer};
use crate::{Error, Kind, Model, Options};
use nibble_format::gguf_name;
use nibble_graph::Product;
use std::{collections::BTreeMap, ops::ControlFlow, path::Path};

/// Rows whose inputs are held at once.
const ROWS: usize = 64;

/// Tokens of a chunk when nobody asks for others.
const CONTEXT: usize = 512;

/// The inputs of one weight: of each of its matrices, as many as it has experts or one.
#[derive(Clone, Debug, PartialEq)]
pub struct Inputs {
    /// Sums of squares of each column, matrix after matrix.
    pub squares: Vec<f64>,
    /// How many rows went into the sums of each matrix.
    pub counts: Vec<u64>,
}

/// Column weights for [`crate::quantize`], by the names that tensors have in GGUF files.
#[derive(Clone, Debug, PartialEq)]
pub struct Importance {
    /// What was measured.
    pub inputs: BTreeMap<String, Inputs>,
    /// Chunks of the text.
    pub chunks: usize,
    /// Tokens of a chunk.
    pub chunk_len: usize,
}

/// A tapped product and where its figures go.
struct Place {
    product: Product,
    name: String,
    /// From which column of the model each column of the file is taken, where they differ.
    columns: Option<Vec<usize>>,
}

impl Importance {
    /// Runs the tokens of a text through `model` in chunks of `options.context` tokens, 512 if that is `None`, and at most `chunks` of
    /// them. `progress` is told the chunks done and all there are, and may stop the work.
    ///
    /// # Errors
    /// [`Kind::Usage`] for a text that is shorter than a chunk, [`Kind::Load`] for a weight that GGUF files have
    /// no name for, [`Kind::Run`] if it is stopped, and as [`Model::start`].
    pub fn measure(
        model: &Model,
        tokens: &[u32],
        chunks: Option<usize>,
        options: &Options,
        progress: &mut dyn FnMut(usize, usize) -> ControlFlow<()>,
    ) -> Result<Self, Error> {
        let len = options.context.unwrap_or(CONTEXT);
        let count = chunks.unwrap_or(usize::MAX).min(tokens.len() / len);
        if count == 0 {
            let found = tokens.len();
            let what =
                format!("text: expected at least a chunk of {len} tokens, found {found}; take a longer one");
            return Err(Error::new(Kind::Usage, what));
        }
        let mut graph = model.graph.clone();
        let places = places(model, &mut graph)?;
        let last = graph.outputs.len() - 1;
        let options = Options {
            context: Some(len),
            prefill_chunk: Some(ROWS.min(len)),
            wanted: ROWS.min(len),
            sequences: 1,
            ..options.clone()
        };
        let mut engine = model.start_graph(&graph, &options)?;
        let mut found = Self { inputs: BTreeMap::new(), chunks: count, chunk_len: len };
        let mut row = vec![vec![]; graph.outputs.len()];
        for (done, chunk) in tokens.chunks_exact(len).take(count).enumerate() {
            let mut chunk = chunk.to_vec();
            chunk[0] = model.leading_token().unwrap_or(chunk[0]);
            engine.outputs(&chunk, |output, _, numbers| {
                row[output].clear();
                row[output].extend_from_slice(numbers);
                if output == last {
                    places.iter().for_each(|place| place.add(&row, model, &mut found.inputs));
                }
            })?;
            if progress(done + 1, count).is_break() {
                return Err(Error::new(
                    Kind::Run,
                    format!("stopped after {} chunks; nothing was written", done + 1),
                ));
            }
        }
        Ok(found)
    }

    /// Weights with experts that no token went to: their columns count alike.
    pub fn unseen(&self) -> impl Iterator<Item = &str> {
        self.inputs.iter().filter(|(_, inputs)| inputs.counts.contains(&0)).map(|(name, _)| name.as_str())
    }

    /// Writes it as llama.cpp does, so that both read it. `text`: what the texts are called in it.
    ///
    /// # Errors
    /// [`Kind::Run`] if the file cannot be written; an old one is then still there.
    pub fn write(&self, path: &Path, text: &str) -> Result<(), Error> {
        imatrix::write(self, path, text)
    }
}

/// The products of layers, in order, with the names of their weights in GGUF files.
fn places(model: &Model, graph: &mut nibble_graph::Graph) -> Result<Vec<Place>, Error> {
    let (path, architecture) = (model.checkpoint.path.display(), &model.checkpoint.architecture);
    let products = graph.tap_products();
    let in_layers = products.into_iter().filter_map(|product| {
        let weight = graph.weight(product.weight);
        let (_, inner) = layer(&weight.name)?;
        Some((product, weight, inner))
    });
    let place = |(product, weight, inner): (Product, &nibble_graph::Weight, &str)| {
        let name = gguf_name(&weight.name, architecture).ok_or_else(|| {
            let what = "GGUF files have no name for it; measure the model that was not packed yet";
            Error::new(Kind::Load, format!("{path}: tensor `{}`: {what}", weight.name))
        })?;
        let columns =
            order(inner, weight.data.shape().dims(), architecture, &model.checkpoint.metadata)?.columns;
        Ok(Place { product, name, columns })
    };
    in_layers.map(place).collect()
}

impl Place {
    /// Adds the inputs of one row of the step.
    fn add(&self, row: &[Vec<f32>], model: &Model, all: &mut BTreeMap<String, Inputs>) {
        let shape = model.graph.weight(self.product.weight).data.shape();
        let (columns, matrices) = (shape.row_len(), shape.elements() / (shape.row_len() * rows_of(&shape)));
        let inputs = all
            .entry(self.name.clone())
            .or_insert_with(|| Inputs { squares: vec![0.0; matrices * columns], counts: vec![0; matrices] });
        let input = &row[self.product.input];
        match self.product.route {
            None => inputs.add(0, input, self.columns.as_deref()),
            Some((route, used)) => {
                for (slot, &expert) in row[route][used..2 * used].iter().enumerate() {
                    // Each slot has a part of its own, or all have the same input.
                    let part = input.chunks_exact(columns).cycle().nth(slot).unwrap_or_default();
                    inputs.add(expert as usize, part, self.columns.as_deref());
                }
            }
        }
    }
}

/// Rows of each matrix.
fn rows_of(shape: &nibble_tensor::Shape) -> usize {
    shape.dims()[shape.dims().len() - 2]
}

impl Inputs {
    fn add(&mut self, matrix: usize, input: &[f32], columns: Option<&[usize]>) {
        self.counts[matrix] += 1;
        let sums = &mut self.squares[matrix * input.len()..][..input.len()];
        for (i, sum) in sums.iter_mut().enumerate() {
            let x = f64::from(input[columns.map_or(i, |columns| columns[i])]);
            *sum += x * x;
        }
    }
}
