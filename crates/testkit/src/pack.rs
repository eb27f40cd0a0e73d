//! A plain model written in every container and encoding, so that one set of weights can be compared in all of them.
//!
//! The writers are for tests: they follow the layouts and round simply, since what counts is what a file means, not how
//! good it is. They use nothing but additions, products and roundings of single precision, so that they write the same
//! bytes on every machine. `golden/tiny_llama.py` reads what they write with decoders of its own.

mod exl;
mod floats;
mod gguf;
mod grids;
mod integers;
mod tables;
mod ternary;

use half::{bf16, f16};
use nibble_format::safetensors::SafetensorsFile;
use serde_json::{Value as Json, json};
use std::path::Path;

/// A tensor of a safetensors file.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// `F16`, `U8`, ...
    pub dtype: String,
    /// Its dimensions.
    pub dims: Vec<usize>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Tensor {
    /// Joins name, type, dimensions and bytes.
    pub fn new(name: impl Into<String>, dtype: &str, dims: &[usize], bytes: impl Into<Vec<u8>>) -> Self {
        Self { name: name.into(), dtype: dtype.into(), dims: dims.to_vec(), bytes: bytes.into() }
    }
}

/// The safetensors file of these tensors.
pub fn safetensors(tensors: &[Tensor]) -> Vec<u8> {
    let (mut head, mut end) = (serde_json::Map::new(), 0);
    for t in tensors {
        let begin = end;
        end += t.bytes.len();
        head.insert(t.name.clone(), json!({"dtype": t.dtype, "shape": t.dims, "data_offsets": [begin, end]}));
    }
    let head = Json::Object(head).to_string();
    let mut file = [&(head.len() as u64).to_le_bytes(), head.as_bytes()].concat();
    tensors.iter().for_each(|t| file.extend(&t.bytes));
    file
}

/// A matrix `[rows, columns]` of a module: `model.layers.0.mlp.up_proj`.
#[derive(Clone, Debug)]
pub struct Matrix {
    name: String,
    rows: usize,
    columns: usize,
    numbers: Vec<f32>,
}

impl Matrix {
    fn row(&self, row: usize) -> &[f32] {
        &self.numbers[row * self.columns..][..self.columns]
    }

    fn largest(&self) -> f32 {
        largest(&self.numbers)
    }

    fn is_embedding(&self) -> bool {
        self.name.ends_with("embed_tokens")
    }
}

/// A model in a directory of plain numbers.
#[derive(Clone, Debug)]
pub struct Plain {
    config: Json,
    matrices: Vec<Matrix>,
    vectors: Vec<(String, Vec<f32>)>,
}

impl Plain {
    /// Reads a directory with one file.
    ///
    /// # Panics
    /// If it is not there or holds anything but vectors and matrices of BF16: it is ours.
    pub fn read(dir: &Path) -> Self {
        let read = |name: &str| std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let file = SafetensorsFile::parse(read("model.safetensors").into(), dir).expect("a file of ours");
        let config = serde_json::from_slice(&read("config.json")).expect("JSON");
        let mut plain = Self { config, matrices: vec![], vectors: vec![] };
        for (name, info) in &file.tensors {
            assert_eq!(info.dtype, "BF16", "{name}");
            let halves = file.bytes[info.range.clone()].chunks_exact(2);
            let numbers = halves.map(|half| bf16::from_le_bytes([half[0], half[1]]).to_f32()).collect();
            match info.shape[..] {
                [_] => plain.vectors.push((name.clone(), numbers)),
                [rows, columns] => {
                    let name = name.strip_suffix(".weight").expect("a weight").into();
                    plain.matrices.push(Matrix { name, rows, columns, numbers });
                }
                _ => panic!("{name} has shape {:?}", info.shape),
            }
        }
        plain
    }

    /// The same with the output matrix, which is the embedding, as a matrix of its own.
    fn with_head(&self) -> Self {
        let mut with = self.clone();
        let embed = with.matrices.iter().find(|m| m.is_embedding()).expect("an embedding").clone();
        with.matrices.push(Matrix { name: "lm_head".into(), ..embed });
        with.config["tie_word_embeddings"] = false.into();
        with
    }

    /// The directory with what `pack` makes of each matrix, or the matrix in BF16 where it makes nothing.
    fn directory(&self, (key, settings): (&str, Json), pack: impl Fn(&Matrix) -> Option<Parts>) -> Written {
        let mut config = self.config.clone();
        config[key] = settings;
        let mut tensors = vec![];
        for (name, numbers) in &self.vectors {
            tensors.push(Tensor::new(name, "BF16", &[numbers.len()], bf16s(numbers)));
        }
        for m in &self.matrices {
            match pack(m) {
                None => {
                    let name = format!("{}.weight", m.name);
                    tensors.push(Tensor::new(name, "BF16", &[m.rows, m.columns], bf16s(&m.numbers)));
                }
                Some(parts) => {
                    let named = |p: Part| Tensor::new(format!("{}{}", m.name, p.0), p.1, &p.2, p.3);
                    tensors.extend(parts.into_iter().map(named));
                }
            }
        }
        Written::Directory { config: config.to_string(), weights: safetensors(&tensors) }
    }
}

/// A tensor of a module: the ending of its name, type, dimensions and bytes.
type Part = (&'static str, &'static str, Vec<usize>, Vec<u8>);
type Parts = Vec<Part>;

/// A model in a container.
#[derive(Clone, Debug)]
pub enum Written {
    /// `config.json` and `model.safetensors`.
    Directory {
        /// The first.
        config: String,
        /// The second.
        weights: Vec<u8>,
    },
    /// A GGUF file.
    File(Vec<u8>),
    /// A GGUF file and `kernel_config.ini` beside it.
    Tiled {
        /// The file.
        file: Vec<u8>,
        /// How its matrices are cut.
        tiles: String,
    },
}

/// One way to store the model.
pub struct Case {
    /// `gptq-4-order`
    pub name: String,
    /// Writes it.
    pub write: Box<dyn Fn(&Plain) -> Written>,
}

impl Case {
    fn new(name: impl Into<String>, write: impl Fn(&Plain) -> Written + 'static) -> Self {
        Self { name: name.into(), write: Box::new(write) }
    }
}

/// Every container with every encoding that it can hold. Names begin with the container's, `gguf` with those of GGUF files.
pub fn cases() -> Vec<Case> {
    let cases = [gguf::cases, tables::cases, integers::cases, floats::cases, exl::cases, ternary::cases];
    cases.into_iter().flat_map(|cases| cases()).collect()
}

fn largest(numbers: &[f32]) -> f32 {
    numbers.iter().fold(0.0, |most, x| x.abs().max(most))
}

/// Rounded to half precision.
fn half(x: f32) -> f32 {
    f16::from_f32(x).to_f32()
}

fn f16s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect()
}

fn bf16s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect()
}

fn f32s(numbers: &[f32]) -> Vec<u8> {
    numbers.iter().flat_map(|x| x.to_le_bytes()).collect()
}

fn i32s(numbers: impl IntoIterator<Item = usize>) -> Vec<u8> {
    numbers.into_iter().flat_map(|n| (n as i32).to_le_bytes()).collect()
}

/// Codes as a dense stream, lowest bit first, filled up to whole words of 32 bits.
fn stream(codes: impl IntoIterator<Item = u8>, bits: usize) -> Vec<u8> {
    let (mut out, mut held, mut count) = (vec![], 0u32, 0);
    for code in codes {
        held |= u32::from(code) << count;
        count += bits;
        while count >= 8 {
            out.push(held as u8);
            (held, count) = (held >> 8, count - 8);
        }
    }
    if count > 0 {
        out.push(held as u8);
    }
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

/// Streams of one length side by side: word after word of all of them.
fn side_by_side(streams: &[Vec<u8>]) -> Vec<u8> {
    let words = streams.first().map_or(0, |s| s.len() / 4);
    (0..words).flat_map(|word| streams.iter().flat_map(move |s| s[4 * word..][..4].iter().copied())).collect()
}

/// `[rows, columns]` as `[columns, rows]`.
fn turned<T: Copy>(numbers: &[T], columns: usize) -> Vec<T> {
    (0..columns).flat_map(|c| numbers.iter().skip(c).step_by(columns).copied()).collect()
}

/// A place in `0..len` for each of them: an order that is not their own, for lengths that are no multiple of 37.
fn shuffled(len: usize) -> Vec<usize> {
    (0..len).map(|i| (37 * i + 11) % len).collect()
}

/// A sign for each of `len` numbers.
fn signs(len: usize) -> Vec<f32> {
    let mut rng = crate::Rng::new(len as u64);
    (0..len).map(|_| if rng.below(2) == 0 { 1.0 } else { -1.0 }).collect()
}

/// The Walsh-Hadamard transform of each `block` numbers, divided by the root of their number.
fn hadamard(numbers: &mut [f32], block: usize) {
    let scale = 1.0 / (block as f32).sqrt();
    for numbers in numbers.chunks_exact_mut(block) {
        let mut half = 1;
        while half < block {
            for pair in numbers.chunks_exact_mut(2 * half) {
                let (a, b) = pair.split_at_mut(half);
                a.iter_mut().zip(b).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
            }
            half *= 2;
        }
        numbers.iter_mut().for_each(|x| *x *= scale);
    }
}

/// The index of the nearest of some rising numbers.
fn nearest(rising: &[f32], x: f32) -> usize {
    let above = rising.partition_point(|&r| r < x);
    match (above.checked_sub(1), rising.get(above)) {
        (Some(below), Some(&next)) if x - rising[below] <= next - x => below,
        (Some(below), None) => below,
        _ => above,
    }
}
