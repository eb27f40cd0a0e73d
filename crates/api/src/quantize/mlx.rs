//! Writing a directory that MLX and mlx-lm read: matrices in groups under scale and bias, all else as it is.
//!
//! Names, shapes and numbers stay those of the directory that is read, except that the experts of a layer become one stack
//! (`mlp.switch_mlp`). As `mlx_lm.convert` does it, every matrix whose rows are whole groups is rounded; routers are not.
//! Source: mlx-lm, `utils.py`; ml-explore/mlx, `python/mlx/nn/layers/quantized.py`.

use super::{
    Progress, Summary,
    order::Order,
    plan::{Job, Note},
    source::{Tensor, layer},
    write::write,
};
use crate::{Error, Kind};
use nibble_format::{
    Checkpoint, Value, map_file,
    safetensors::{self, NewTensor, SafetensorsFile},
};
use nibble_quant::{
    Codec, Registry, byte_len,
    grouped::{Float, Grouped, Second},
};
use serde_json::{Value as Json, json};
use std::{
    collections::HashSet,
    ffi::OsString,
    fs,
    io::{self, Write},
    ops::ControlFlow,
    path::{Path, PathBuf},
};

/// Architectures whose directories mlx-lm was seen to read.
const ARCHITECTURES: &[&str] =
    &["llama", "mistral", "qwen2", "qwen3", "qwen3moe", "gemma2", "gemma3", "qwen35"];

/// Matrices that are too small or decide too much to be rounded, by their canonical names.
const NEVER: &[&str] = &["delta.conv", "moe.router", "moe.shared.router"];

/// What stands beside the weights and is copied where it is there.
const BESIDE: &[&str] = &[
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
];

/// How MLX is to have the matrices: codes under a scale and a bias for each group.
#[derive(Clone, Copy, Debug)]
pub struct MlxOptions {
    /// Bits of a code: 2, 3, 4, 5, 6 or 8.
    pub bits: usize,
    /// Numbers of a group: 32, 64 or 128.
    pub group: usize,
}

/// Writes the model in the directory `input`, with plain weights, to the directory `output`, as MLX keeps models.
///
/// `progress` is told of every few million weights and may stop the work.
///
/// # Errors
/// [`Kind::Usage`] for bits and groups that MLX does not have and an output that is there already, [`Kind::Load`] for an
/// input that cannot be read or is none to make such a directory from, [`Kind::Run`] if writing fails or is stopped. There is
/// no `output` after an error. Tensors that were finished stay in `OUTPUT.partial`; another call for the same from the same goes
/// on from there.
pub fn quantize_to_mlx(
    input: &Path,
    output: &Path,
    options: MlxOptions,
    codecs: &Registry,
    progress: &mut dyn FnMut(Progress<'_>) -> ControlFlow<()>,
) -> Result<Summary, Error> {
    check(options)?;
    if output.exists() {
        let what = format!(
            "{}: exists already, and directories are not replaced; choose another name",
            output.display()
        );
        return Err(Error::new(Kind::Usage, what));
    }
    let checkpoint = nibble_format::open(input, codecs)?;
    check_source(&checkpoint)?;
    let Tensors { rounded, plain, warnings } = tensors(&checkpoint, options.group, codecs)?;
    if rounded.is_empty() {
        let what = format!(
            "expected matrices to round, but no matrix has rows of whole groups of {}",
            options.group
        );
        return Err(Error::new(Kind::Load, format!("{}: {what}", input.display())));
    }
    let grouped = |tensor| job(tensor, Some(options));
    let jobs: Vec<_> =
        rounded.iter().map(grouped).chain(plain.iter().map(|tensor| job(tensor, None))).collect();
    let head =
        safetensors::head(&jobs.iter().flat_map(entries).collect::<Vec<_>>(), &[("format", "mlx".into())]);
    let lengths = jobs.iter().map(|job| {
        let len = byte_len(&job.tensor.data.shape(), job.codec);
        len.map(|len| (len as u64, 0)).map_err(|e| Error::new(Kind::Load, e.to_string()))
    });
    let lengths = lengths.collect::<Result<Vec<_>, _>>()?;

    let mut partial = OsString::from(output);
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    // What another run left has a journal; anything else is someone's.
    let journal = partial.join("model.safetensors.partial.journal");
    if partial.exists() && !journal.exists() && fs::remove_dir(&partial).is_err() {
        let what = "is there already and not from an earlier run; move it away or choose another name";
        return Err(Error::new(Kind::Usage, format!("{}: {what}", partial.display())));
    }
    let io = |e: io::Error| Error::new(Kind::Run, format!("{}: cannot be written: {e}", partial.display()));
    fs::create_dir_all(&partial).map_err(io)?;
    let written = write(&partial.join("model.safetensors"), &head, &jobs, &lengths, None, progress);
    let written = written.inspect_err(|_| {
        fs::remove_dir(&partial).ok(); // only if nothing is worth keeping
    })?;
    let config = config(input, options)?;
    fs::write(partial.join("config.json"), config).map_err(io)?;
    for name in BESIDE.iter().filter(|name| input.join(name).is_file()) {
        fs::copy(input.join(name), partial.join(name)).map_err(io)?;
    }
    fs::rename(&partial, output).map_err(io)?;
    Ok(Summary { tensors: written.reports, resumed: written.resumed, warnings })
}

fn check(MlxOptions { bits, group }: MlxOptions) -> Result<(), Error> {
    let known = matches!(bits, 2..=6 | 8) && matches!(group, 32 | 64 | 128);
    let what = || {
        format!(
            "MLX: expected 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128, found {bits} in groups of {group}"
        )
    };
    known.then_some(()).ok_or_else(|| Error::new(Kind::Usage, what()))
}

/// Refuses what would need another config, tokenizer or shape than the directory has.
fn check_source(checkpoint: &Checkpoint) -> Result<(), Error> {
    let refuse = |what: String| Err(Error::new(Kind::Load, format!("{}: {what}", checkpoint.path.display())));
    if checkpoint.container != "safetensors" {
        let found = checkpoint.container;
        return refuse(format!(
            "expected a directory with plain safetensors to make an MLX directory from, found `{found}`"
        ));
    }
    if !ARCHITECTURES.contains(&checkpoint.architecture.as_str()) {
        let (known, found) = (ARCHITECTURES.join(", "), &checkpoint.architecture);
        return refuse(format!("MLX directories are written for {known}, found {found}"));
    }
    Ok(())
}

/// What the output holds.
struct Tensors {
    /// Matrices, under MLX's names.
    rounded: Vec<Tensor>,
    /// What else the files hold.
    plain: Vec<Tensor>,
    warnings: Vec<String>,
}

fn tensors(checkpoint: &Checkpoint, group: usize, codecs: &Registry) -> Result<Tensors, Error> {
    let tensor = |name: String, data| Tensor { name, data, order: Order::default(), keep: true };
    let (mut rounded, mut plain, mut warnings) = (vec![], vec![], vec![]);
    let mut taken: HashSet<String> = checkpoint.ignored.iter().cloned().collect();
    let tied = matches!(checkpoint.metadata.get("tie_word_embeddings"), Some(Value::Bool(true)));
    for (canonical, data) in &checkpoint.tensors {
        let name = &checkpoint.file_names[canonical];
        if canonical == "head" && tied {
            taken.insert(name.clone()); // readers take the embedding
            continue;
        }
        let inner = layer(canonical).map_or(canonical.as_str(), |(_, inner)| inner);
        let shape = data.shape();
        if shape.dims().len() < 2 || NEVER.contains(&inner) || float(data.name()).is_none() {
            continue;
        }
        let name = match name.split_once(".experts.0.") {
            Some((before, after)) => {
                let experts = shape.dims()[0];
                taken.extend((0..experts).map(|e| format!("{before}.experts.{e}.{after}")));
                format!("{before}.switch_mlp.{after}")
            }
            None => {
                taken.insert(name.clone());
                name.clone()
            }
        };
        match shape.row_len().is_multiple_of(group) {
            true => rounded.push(tensor(name, data.clone())),
            false => plain.push(tensor(name, data.clone())),
        }
    }
    if let Some(Tensor { name, .. }) = plain.first() {
        let count = plain.len();
        warnings.push(format!(
            "{count} matrices have rows that are no whole number of groups of {group} and stay as they are (`{name}`)"
        ));
    }
    for (path, _) in &checkpoint.files {
        let file = SafetensorsFile::parse(map_file(path)?, path)?;
        for name in file.tensors.keys().filter(|name| !taken.contains(*name)) {
            match file.tensor(name, codecs)? {
                Some(data) => plain.push(tensor(name.clone(), data)),
                None => {
                    warnings.push(format!("{}: `{name}` holds no floats and is left out", path.display()))
                }
            }
        }
    }
    Ok(Tensors { rounded, plain, warnings })
}

fn float(name: &str) -> Option<Float> {
    [("f32", Float::F32), ("f16", Float::F16), ("bf16", Float::Bf16)]
        .into_iter()
        .find_map(|(known, float)| (known == name).then_some(float))
}

/// A matrix to be rounded to bits in groups, or a tensor to be copied.
fn job(tensor: &Tensor, options: Option<MlxOptions>) -> Job<'_> {
    let from = tensor.data.codec();
    let grouped = options.and_then(|MlxOptions { bits, group }| {
        Grouped::find(bits, group, Second::Bias, float(from.spec().name)?).map(|codec| codec as &dyn Codec)
    });
    Job { tensor, codec: grouped.unwrap_or(from), note: Note::None, fallback: false }
}

/// What the head of the file says of a job: words, scales and biases, or the tensor itself.
fn entries(job: &Job<'_>) -> Vec<NewTensor> {
    let (name, shape) = (&job.tensor.name, job.tensor.data.shape());
    let dtype = |float| match float {
        Float::F16 => "F16",
        Float::Bf16 => "BF16",
        Float::F32 => "F32",
    };
    let new = |name: String, dtype, columns: usize| {
        let mut dims = shape.dims().to_vec();
        *dims.last_mut().expect("a shape has a dimension") = columns;
        NewTensor { name, dtype, shape: dims }
    };
    let columns = shape.row_len();
    match Grouped::of(job.codec) {
        Some(grouped) => {
            let module = name.strip_suffix(".weight").unwrap_or(name);
            let (float, groups) = (dtype(grouped.float), columns / grouped.spec().block_len);
            vec![
                new(name.clone(), "U32", columns * grouped.bits / 32),
                new(format!("{module}.scales"), float, groups),
                new(format!("{module}.biases"), float, groups),
            ]
        }
        None => vec![new(name.clone(), float(job.codec.spec().name).map_or("F64", dtype), columns)],
    }
}

/// `config.json` with what MLX must know to read the matrices.
fn config(input: &Path, MlxOptions { bits, group }: MlxOptions) -> Result<String, Error> {
    let path = input.join("config.json");
    let refuse = |what: String| Error::new(Kind::Load, format!("{}: {what}", path.display()));
    let text = fs::read(&path).map_err(|e| refuse(format!("cannot be read: {e}")))?;
    let mut config: Json = serde_json::from_slice(&text).map_err(|e| refuse(e.to_string()))?;
    let settings = json!({ "group_size": group, "bits": bits, "mode": "affine" });
    config["quantization"] = settings.clone();
    config["quantization_config"] = settings; // where other readers look
    Ok(format!("{config:#}\n"))
}

/// Takes blocks apart into what MLX keeps: a stream of codes, then all scales, then all biases.
pub(super) struct Planes<'a> {
    grouped: &'static Grouped,
    out: &'a mut dyn Write,
    numbers: [Vec<u8>; 2],
}

impl<'a> Planes<'a> {
    pub fn new(grouped: &'static Grouped, out: &'a mut dyn Write) -> Self {
        Self { grouped, out, numbers: [vec![], vec![]] }
    }

    /// Writes scales and biases.
    pub fn finish(self) -> io::Result<()> {
        self.numbers.iter().try_for_each(|numbers| self.out.write_all(numbers))
    }
}

impl Write for Planes<'_> {
    /// Takes whole blocks.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (spec, bits) = (self.grouped.spec(), self.grouped.bits);
        let mut stream = Vec::with_capacity(bytes.len());
        let mut codes = vec![0; spec.block_len];
        for block in bytes.chunks_exact(spec.block_bytes) {
            let numbers = self.grouped.take(block, &mut codes);
            let (scale, bias) = numbers.split_at(numbers.len() / 2);
            self.numbers[0].extend(scale);
            self.numbers[1].extend(bias);
            // Eight codes are as many bytes as a code has bits.
            for eight in codes.as_chunks::<8>().0 {
                let word = eight.iter().rev().fold(0u64, |word, &code| word << bits | u64::from(code));
                stream.extend(&word.to_le_bytes()[..bits]);
            }
        }
        self.out.write_all(&stream)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nibble_quant::Encoded;
    use nibble_tensor::Shape;
    use nibble_testkit::workspace_root;

    fn unhex(text: &str) -> Vec<u8> {
        let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).unwrap();
        (0..text.len()).step_by(2).map(byte).collect()
    }

    #[test]
    fn words_scales_and_biases_are_those_of_mlx() {
        let golden = fs::read(workspace_root().join("golden/mlx_quantize.json")).unwrap();
        let golden: Json = serde_json::from_slice(&golden).unwrap();
        let golden = golden.as_object().unwrap();
        let numbers: Vec<f32> = unhex(golden["rows"].as_str().unwrap())
            .as_chunks::<4>()
            .0
            .iter()
            .map(|bytes| f32::from_le_bytes(*bytes))
            .collect();
        let shape = Shape::new(&[2, 128]).unwrap();
        let cases: Vec<_> = golden.iter().filter(|(key, _)| *key != "rows").collect();
        assert_eq!(cases.len(), 3 * 6 * 3);
        for (key, parts) in cases {
            let words: Vec<&str> = key.split(' ').collect();
            let [bits, group] = [1, 2].map(|i| words[i].parse().unwrap());
            let grouped = Grouped::find(bits, group, Second::Bias, float(words[0]).unwrap()).unwrap();
            let encoded = Encoded::encode("t", shape, grouped, &numbers, None).unwrap();
            let mut written = vec![];
            let mut planes = Planes::new(grouped, &mut written);
            encoded.parts().iter().for_each(|part| planes.write_all(part).unwrap());
            planes.finish().unwrap();
            let expected: Vec<u8> =
                parts.as_array().unwrap().iter().flat_map(|part| unhex(part.as_str().unwrap())).collect();
            assert_eq!(written, expected, "{key}");
        }
    }
}
