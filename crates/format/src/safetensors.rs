//! `safetensors`: a Hugging Face directory, `config.json` beside `model.safetensors` or its shards.
//!
//! Weights are plain F32, F16 or BF16, or ternary as BitNet packs them; every other scheme is refused by name.

mod header;
mod write;

pub use header::{SafetensorsFile, TensorInfo};
pub use write::{NewTensor, head};

use crate::{
    Checkpoint, Container, Error, Metadata, OpenOptions, Problem, TokenizerSource,
    bitnet::Packing,
    hf_config::Config,
    map,
    names::{self, Meaning},
};
use nibble_quant::{Encoded, Registry};
use nibble_tensor::{Bytes, Shape};
use serde_json::{Map, Value as Json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::Path,
};

/// Longest configuration, tokenizer or template that is read; the longest in use are below 40 MB.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// The container.
pub(crate) struct Safetensors;

impl Container for Safetensors {
    fn name(&self) -> &'static str {
        "safetensors"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        head.is_none() && path.join("config.json").is_file()
    }

    fn open(&self, path: &Path, codecs: &Registry, _options: &OpenOptions) -> Result<Checkpoint, Error> {
        checkpoint(path, codecs).map_err(|e| match e.place.starts_with(&path.display().to_string()) {
            true => e,
            false => e.within(path.display().to_string()),
        })
    }
}

fn checkpoint(path: &Path, codecs: &Registry) -> Result<Checkpoint, Error> {
    let config = Config::parse(&read(&path.join("config.json"))?)?;
    let generation = read_if_there(&path.join("generation_config.json"))?;
    let mut metadata = config.metadata(generation.as_deref())?;
    let packing = packing(path, &config.root)?;
    if packing.is_some() {
        metadata.set("quantization.activation_bits", 8usize);
    }
    let (files, mut ignored) = weight_files(path)?;
    refuse_unknown_schemes(&files, packing.is_some())?;
    let tokenizer_config = read_if_there(&path.join("tokenizer_config.json"))?.map(Bytes::from);
    let mut checkpoint = Checkpoint {
        path: path.to_owned(),
        container: Safetensors.name(),
        architecture: config.architecture.clone(),
        chat_template: chat_template(path, tokenizer_config.as_deref())?,
        tokenizer: tokenizer(path, tokenizer_config)?,
        files: files.iter().map(|f| (f.file.path.clone(), f.file.bytes.len() as u64)).collect(),
        ..Checkpoint::default()
    };
    checkpoint.ignored.append(&mut ignored);
    let layers = metadata.usize("block_count")?;
    let mut experts = BTreeMap::new();
    for file in &files {
        for name in &file.names {
            let meaning = names::from_hf(name, &config.architecture, layers);
            let canonical = match &meaning {
                Meaning::Weight(canonical) | Meaning::Expert(canonical, _) => canonical.clone(),
                Meaning::Ignored | Meaning::Unknown => String::new(),
            };
            let load = || load(&file.file, name, &canonical, &config, packing, codecs);
            checkpoint.place(name, meaning, &mut experts, load)?;
        }
    }
    checkpoint.stack(experts, metadata.find_int("expert_count")?)?;
    checkpoint.metadata = metadata;
    Ok(checkpoint)
}

/// The canonical architecture and keys of a `config.json` and, if there is one, a `generation_config.json`.
///
/// # Errors
/// One that names the key whose value is not what it must be.
pub fn read_config(config: &[u8], generation: Option<&[u8]>) -> Result<(String, Metadata), Error> {
    let config = Config::parse(config)?;
    let metadata = config.metadata(generation)?;
    Ok((config.architecture, metadata))
}

/// A file and those of its tensors that belong to the model.
struct Shard {
    file: SafetensorsFile,
    names: Vec<String>,
}

/// The files of a model, and tensors in them that its index does not list.
fn weight_files(path: &Path) -> Result<(Vec<Shard>, Vec<String>), Error> {
    let index = path.join("model.safetensors.index.json");
    let single = path.join("model.safetensors");
    let open = |path: &Path| SafetensorsFile::parse(map::map(path)?, path);
    if !index.is_file() {
        if !single.is_file() {
            return Err(
                Problem::Missing("model.safetensors or model.safetensors.index.json".into()).at_path(path)
            );
        }
        let file = open(&single)?;
        let names = file.tensors.keys().cloned().collect();
        return Ok((vec![Shard { file, names }], Vec::new()));
    }
    let by_file = read_index(&index)?;
    let (mut shards, mut unlisted) = (Vec::new(), Vec::new());
    for (name, tensors) in by_file {
        let file = open(&path.join(&name))?;
        if let Some(missing) = tensors.iter().find(|t| !file.tensors.contains_key(*t)) {
            let place = format!("{}: tensor `{missing}`", file.path.display());
            return Err(Problem::Missing("a tensor that the index says is here".into()).at(place));
        }
        unlisted.extend(file.tensors.keys().filter(|t| !tensors.contains(*t)).cloned());
        shards.push(Shard { file, names: tensors.into_iter().collect() });
    }
    Ok((shards, unlisted))
}

/// File name -> tensors in it. File names come from outside: only plain names in the same directory are taken.
fn read_index(index: &Path) -> Result<BTreeMap<String, BTreeSet<String>>, Error> {
    #[derive(serde::Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let text = read(index)?;
    let index_json: Index = serde_json::from_slice(&text).map_err(|e| Problem::Json(e).at_path(index))?;
    let mut by_file: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (tensor, file) in index_json.weight_map {
        let plain = file.ends_with(".safetensors")
            && !file.contains(['/', '\\', ':', '\0'])
            && !file.starts_with('.');
        if !plain {
            let expected = "the name of a .safetensors file in the same directory";
            let place = format!("{}: tensor `{tensor}`", index.display());
            return Err(Problem::expected(expected, format!("{file:.200?}")).at(place));
        }
        by_file.entry(file).or_default().insert(tensor);
    }
    Ok(by_file)
}

/// How weights are packed, by `config.json`; `None` if they are plain.
fn packing(path: &Path, root: &Map<String, Json>) -> Result<Option<Packing>, Error> {
    let refuse = |what: String| Err(Problem::Unsupported(what).at("config.json"));
    if let Some(name) =
        root.get("model_type").and_then(Json::as_str).filter(|t| t.starts_with("prism_hadamard"))
    {
        return refuse(format!("model_type {name:?} (rotated Prism weights for MLX) is not supported yet"));
    }
    if root.get("quantization").is_some_and(Json::is_object) {
        return refuse("MLX quantization is not supported yet".into());
    }
    for (file, what) in [("hf_quant_config.json", "ModelOpt"), ("quantize_config.json", "GPTQ")] {
        if path.join(file).is_file() {
            return Err(Problem::Unsupported(format!("{what} quantization is not supported yet")).at(file));
        }
    }
    let config = match root.get("quantization_config") {
        None | Some(Json::Null) => return Ok(None),
        Some(config) => config,
    };
    match config.get("quant_method").and_then(Json::as_str) {
        Some("bitnet") => Packing::from_config(config).map(Some),
        Some(other) => refuse(format!("quant_method {other:.60?} is not supported yet")),
        None => refuse("quantization_config without quant_method is not supported".into()),
    }
}

/// Refuses packed weights that `config.json` does not speak of: read as plain ones they would be plausible garbage.
fn refuse_unknown_schemes(shards: &[Shard], bitnet: bool) -> Result<(), Error> {
    const ENDINGS: &[(&str, &str)] = &[
        (".trellis", "EXL3"),
        (".q_weight", "EXL2"),
        (".qweight", "GPTQ or AWQ"),
        (".weight_packed", "compressed-tensors"),
        (".weight_scale_inv", "FP8"),
        (".scales", "MLX"),
    ];
    for shard in shards {
        for name in &shard.names {
            let place = || format!("{}: tensor `{name}`", shard.file.path.display());
            if let Some((_, what)) = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)) {
                return Err(Problem::Unsupported(format!("looks like {what}, which is not supported yet"))
                    .at(place()));
            }
            let packed = |t: &TensorInfo| t.dtype == "U8" || t.dtype.starts_with("F8") || t.dtype == "U32";
            if !bitnet && name.ends_with(".weight") && shard.file.tensors.get(name).is_some_and(packed) {
                let what = "holds packed weights, but config.json has no quantization_config that says how";
                return Err(Problem::Unsupported(what.into()).at(place()));
            }
        }
    }
    Ok(())
}

/// A tensor of the file as the weight `canonical`: as it is, or changed so that the name means what it means everywhere.
fn load(
    file: &SafetensorsFile,
    name: &str,
    canonical: &str,
    config: &Config,
    packing: Option<Packing>,
    codecs: &Registry,
) -> Result<Option<Encoded>, Error> {
    let place = || format!("{}: tensor `{name}`", file.path.display());
    let info = &file.tensors[name];
    if let (Some(packing), "U8") = (packing, info.dtype.as_str()) {
        let unpacked = packing.weight(name, &file.raw(info), &info.shape, codecs);
        return unpacked.map(Some).map_err(|p| p.at(place()));
    }
    let Some(tensor) = file.tensor(name, codecs)? else { return Ok(None) };
    let leaf = canonical.rsplit('.').next().unwrap_or(canonical);
    let changed = match leaf {
        "scale" => {
            let Some(packing) = packing else { return Ok(None) };
            let factor = |x: f32| packing.factor(x);
            to_f32(&tensor, [tensor.shape().elements()].into(), codecs, factor)
        }
        "decay" => to_f32(&tensor, tensor.shape(), codecs, |a_log| -a_log.exp()),
        "conv" => return without_middle_dimension(name, tensor).map(Some).map_err(|p| p.at(place())),
        _ if config.norms_minus_one && leaf.ends_with("norm") && !canonical.ends_with("delta.norm") => {
            to_f32(&tensor, tensor.shape(), codecs, |w| w + 1.0)
        }
        _ => return Ok(Some(tensor)),
    };
    changed.map(Some).map_err(|p| p.at(place()))
}

/// The numbers of a tensor, changed one by one, as f32.
pub(crate) fn to_f32(
    tensor: &Encoded,
    shape: Shape,
    codecs: &Registry,
    change: impl Fn(f32) -> f32,
) -> Result<Encoded, Problem> {
    let bytes: Vec<u8> = tensor.decode().into_iter().flat_map(|x| change(x).to_le_bytes()).collect();
    let codec = codecs.by_name("f32").ok_or_else(|| Problem::Missing("a codec named f32".into()))?;
    Encoded::new("f32", shape, codec, bytes.into()).map_err(|e| Problem::Encoding(e.problem))
}

/// `[D, 1, kernel]` -> `[D, kernel]`
fn without_middle_dimension(name: &str, tensor: Encoded) -> Result<Encoded, Problem> {
    let shape = match *tensor.shape().dims() {
        [channels, 1, kernel] => Shape::from([channels, kernel]),
        [_, _] => tensor.shape(),
        _ => return Err(Problem::expected("shape [channels, 1, kernel]", tensor.shape())),
    };
    let bytes = tensor.parts()[0].clone();
    Encoded::new(name, shape, tensor.codec(), bytes).map_err(|e| Problem::Encoding(e.problem))
}

fn tokenizer(path: &Path, config: Option<Bytes>) -> Result<TokenizerSource, Error> {
    let file = path.join("tokenizer.json");
    if !file.is_file() {
        return Ok(TokenizerSource::None);
    }
    Ok(TokenizerSource::Json { tokenizer: read(&file)?.into(), config })
}

/// `chat_template.jinja`, or `chat_template` in `tokenizer_config.json`: a text, or a list with one named `default`.
fn chat_template(path: &Path, config: Option<&[u8]>) -> Result<Option<String>, Error> {
    let jinja = path.join("chat_template.jinja");
    if let Some(text) = read_if_there(&jinja)? {
        let text = String::from_utf8(text);
        return text.map(Some).map_err(|_| Problem::expected("UTF-8", "other bytes").at_path(&jinja));
    }
    #[derive(serde::Deserialize)]
    struct Named {
        name: String,
        template: String,
    }
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Template {
        One(String),
        Several(Vec<Named>),
    }
    #[derive(serde::Deserialize)]
    struct TokenizerConfig {
        chat_template: Option<Template>,
    }
    let Some(config) = config else { return Ok(None) };
    let config: TokenizerConfig =
        serde_json::from_slice(config).map_err(|e| Problem::Json(e).at("tokenizer_config.json"))?;
    Ok(match config.chat_template {
        None => None,
        Some(Template::One(text)) => Some(text),
        Some(Template::Several(mut list)) => {
            let default = list.iter().position(|t| t.name == "default").unwrap_or(0);
            (!list.is_empty()).then(|| list.swap_remove(default).template)
        }
    })
}

/// The whole of a small file.
fn read(path: &Path) -> Result<Vec<u8>, Error> {
    let io = |e| Problem::Io(e).at_path(path);
    let mut bytes = Vec::new();
    map::open(path)?.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        return Err(Problem::expected(format!("at most {MAX_TEXT_BYTES} bytes"), "more").at_path(path));
    }
    Ok(bytes)
}

fn read_if_there(path: &Path) -> Result<Option<Vec<u8>>, Error> {
    path.is_file().then(|| read(path)).transpose()
}
