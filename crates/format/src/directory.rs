//! A Hugging Face directory: `config.json` beside `model.safetensors` or its shards, whatever packs the matrices.

use crate::{
    Broken, Checkpoint, Container, Error, OpenOptions, Problem, TokenizerSource, gpt_oss,
    hf_config::Config,
    map,
    names::{self, Meaning},
    repack::{Piece, check_budget},
    safetensors::SafetensorsFile,
    scheme::{Module, Pieces, Scheme, Tensors},
};
use nibble_quant::{Encoded, Registry};
use nibble_tensor::{Bytes, Shape};
use serde_json::{Map, Value as Json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read,
    path::{Path, PathBuf},
};

/// Longest configuration, tokenizer or template that is read; the longest in use are below 40 MB.
const MAX_TEXT_BYTES: u64 = 256 << 20;

/// `config.json` of a directory, if there is one that can be read; what is wrong with it the container that opens it says.
pub(crate) fn peek(path: &Path, head: Option<&[u8]>) -> Option<Map<String, Json>> {
    let config = path.join("config.json");
    (head.is_none() && config.is_file()).then(|| serde_json::from_slice(&read(&config).ok()?).ok())?
}

/// A small JSON file.
///
/// # Errors
/// If it cannot be read.
pub(crate) fn json(path: &Path) -> Result<Json, Error> {
    serde_json::from_slice(&read(path)?).map_err(|e| Problem::Json(e).at_path(path))
}

/// `quant_method` of a directory's `quantization_config`.
pub(crate) fn method(path: &Path, head: Option<&[u8]>) -> Option<String> {
    let root = peek(path, head)?;
    Some(root.get("quantization_config")?.get("quant_method")?.as_str()?.to_owned())
}

/// Opens a directory whose matrices are packed as the scheme says that `scheme` finds in its configuration.
///
/// # Errors
/// One that names file, key or tensor, what was expected and what was found.
pub(crate) fn open(
    container: &dyn Container,
    path: &Path,
    codecs: &Registry,
    options: &OpenOptions,
    scheme: impl FnOnce(&Config) -> Result<Box<dyn Scheme>, Error>,
) -> Result<Checkpoint, Error> {
    let place = path.display().to_string();
    let placed = |e: Error| if e.place.starts_with(&place) { e } else { e.within(&place) };
    let mut checkpoint = checkpoint(container, path, codecs, options, scheme).map_err(placed)?;
    checkpoint.broken.errors = checkpoint.broken.errors.into_iter().map(placed).collect();
    Ok(checkpoint)
}

fn checkpoint(
    container: &dyn Container,
    path: &Path,
    codecs: &Registry,
    options: &OpenOptions,
    scheme: impl FnOnce(&Config) -> Result<Box<dyn Scheme>, Error>,
) -> Result<Checkpoint, Error> {
    let mut config = Config::parse(&read(&path.join("config.json"))?)?;
    let generation = read_if_there(&path.join("generation_config.json"))?;
    let mut metadata = config.metadata(generation.as_deref())?;
    let scheme = scheme(&config)?;
    if let Some(bits) = scheme.activation_bits() {
        metadata.set("quantization.activation_bits", bits);
    }
    if let Some(block) = scheme.rotation_block() {
        metadata.set("rotation.block_size", block);
    }
    let mut broken = Broken::new(options.keep_broken);
    let (shards, unlisted, absent) = weight_files(path)?;
    let tokenizer_config = read_if_there(&path.join("tokenizer_config.json"))?.map(Bytes::from);
    let mut checkpoint = Checkpoint {
        path: path.to_owned(),
        container: container.name(),
        architecture: config.architecture.clone(),
        chat_template: chat_template(path, tokenizer_config.as_deref())?,
        tokenizer: tokenizer(path, tokenizer_config)?,
        files: shards.iter().map(|s| (s.file.path.clone(), s.file.bytes.len() as u64)).collect(),
        ignored: unlisted,
        ..Checkpoint::default()
    };
    let layers = metadata.usize("block_count")?;
    let lent = shards.iter().map(Shard::lend).collect::<Result<Vec<_>, _>>()?;
    let tensors = Tensors { by_name: by_name(&shards, &lent)? };
    config.norms_minus_one &= !has_mlx_convolutions(&tensors);
    let meaning_of = |module: &str| names::from_hf(module, &config.architecture, layers);
    let known_by = |name: &str| {
        let weight = weight_of(name, scheme.as_ref());
        (weight.clone(), meaning_of(&weight).canonical())
    };
    for (names, error) in absent {
        broken.add(names.iter().map(|name| known_by(name)), error)?;
    }
    let (modules, mut plain, wrong) = modules(&tensors, scheme.as_ref())?;
    for (name, error) in wrong {
        broken.add([known_by(name)], error)?;
    }
    let mut experts = BTreeMap::new();
    let mut pieces = Vec::new();
    for name in modules {
        let module = Module { name, tensors: &tensors, codecs };
        let place = || format!("tensor `{name}{}`", mark(&tensors, scheme.as_ref(), name));
        match meaning_of(&format!("{name}.weight")) {
            Meaning::Ignored => checkpoint.ignored.push(name.to_owned()),
            Meaning::Unknown => checkpoint.unused.push(name.to_owned()),
            meaning => match scheme.pieces(&module) {
                Ok(Some(found)) => pieces.push((name, meaning, found)),
                Ok(None) => {
                    plain_module(&mut checkpoint, &module, scheme.as_ref(), &mut experts, (&config, layers))?
                }
                Err(problem) => broken.add([known_by(&format!("{name}.weight"))], problem.at(place()))?,
            },
        }
    }
    for name in plain.extract_if(.., |name| gpt_oss::is_turned(name, &config.architecture)) {
        let module = Module { name, tensors: &tensors, codecs };
        let meaning = meaning_of(name);
        match gpt_oss::piece(&module) {
            Ok(piece) => pieces.push((name, meaning, vec![(String::new(), piece)])),
            Err(problem) => broken.add([known_by(name)], problem.at(format!("tensor `{name}`")))?,
        }
    }
    let advice = "convert it once with `nibble quantize`, on a machine with more";
    check_budget(unpacked_bytes(&pieces), options.unpack_budget, advice)?;
    for (name, meaning, found) in pieces {
        let known_by = (format!("{name}.weight"), meaning.canonical());
        place(&mut checkpoint, name, meaning, found, &mut experts).or_else(|e| broken.add([known_by], e))?;
    }
    for name in plain {
        let meaning = meaning_of(name);
        let canonical = meaning.canonical();
        let load = || plain_tensor(&tensors, name, &canonical, &config, codecs);
        let placed = checkpoint.place(name, meaning, &mut experts, load);
        placed.or_else(|e| broken.add([(name.to_owned(), canonical.clone())], e))?;
    }
    let count = metadata.find_int("expert_count")?;
    for (name, matrices) in experts {
        if broken.names.contains(&name) {
            continue; // not all of them are there
        }
        let stacked = checkpoint.stack(BTreeMap::from([(name.clone(), matrices)]), count);
        stacked.or_else(|e| broken.add([(name.clone(), name)], e))?;
    }
    checkpoint.split_gate_up()?;
    checkpoint.metadata = metadata;
    checkpoint.broken = broken;
    Ok(checkpoint)
}

/// Whether kernels of convolutions are `[channels, kernel, 1]`: MLX turns them when it converts a model with a delta net,
/// and then stores its norm weights as the factor itself.
fn has_mlx_convolutions(tensors: &Tensors<'_>) -> bool {
    let turned = |(name, (file, _)): (&&str, &(&SafetensorsFile, &SafetensorsFile))| {
        name.ends_with(".conv1d.weight")
            && matches!(file.tensors[*name].shape[..], [_, kernel, 1] if kernel > 1)
    };
    tensors.by_name.iter().any(turned)
}

/// Tensors by name, each with the file that stays mapped and the one that does not.
fn by_name<'a>(
    shards: &'a [Shard],
    lent: &'a [SafetensorsFile],
) -> Result<BTreeMap<&'a str, (&'a SafetensorsFile, &'a SafetensorsFile)>, Error> {
    let mut by_name = BTreeMap::new();
    for (shard, lent) in shards.iter().zip(lent) {
        for name in &shard.names {
            if by_name.insert(name.as_str(), (&shard.file, lent)).is_some() {
                let place = format!("{}: tensor `{name}`", shard.file.path.display());
                return Err(Problem::Duplicate.at(place));
            }
        }
    }
    Ok(by_name)
}

/// The name of the weight that a tensor of a module belongs to.
fn weight_of(name: &str, scheme: &dyn Scheme) -> String {
    let mut endings = scheme.marks().iter().chain(scheme.companions());
    match endings.find_map(|ending| name.strip_suffix(ending)) {
        Some(module) => format!("{module}.weight"),
        None => name.to_owned(),
    }
}

/// The modules that are packed, the names of all tensors that belong to none of them, and those that belong nowhere.
#[allow(clippy::type_complexity, reason = "three lists of one pass")]
fn modules<'a>(
    tensors: &Tensors<'a>,
    scheme: &dyn Scheme,
) -> Result<(BTreeSet<&'a str>, Vec<&'a str>, Vec<(&'a str, Error)>), Error> {
    let strip = |name: &'a str, endings: &[&str]| endings.iter().find_map(|ending| name.strip_suffix(ending));
    let names = || tensors.by_name.keys().copied();
    let modules: BTreeSet<&str> = names().filter_map(|name| strip(name, scheme.marks())).collect();
    if modules.is_empty() && !scheme.marks().is_empty() {
        let marks = scheme.marks().join("` or `");
        let missing =
            Problem::Missing(format!("tensors whose names end with `{marks}`, as config.json promises"));
        return Err(missing.at("weights"));
    }
    let (mut plain, mut wrong) = (Vec::new(), Vec::new());
    for name in names() {
        let module = strip(name, scheme.marks()).or_else(|| strip(name, scheme.companions()));
        match module {
            Some(module) if modules.contains(module) => {}
            Some(module) if !name.ends_with(".weight") => {
                let mark = scheme.marks().join("` or `");
                let missing =
                    Problem::Missing(format!("a tensor `{module}` with the ending `{mark}` beside it"));
                wrong.push((name, missing.at(format!("tensor `{name}`"))));
            }
            _ => match refuse_packed(tensors, name, scheme) {
                Ok(()) => plain.push(name),
                Err(error) => wrong.push((name, error)),
            },
        }
    }
    Ok((modules, plain, wrong))
}

/// The ending by which a module is known.
fn mark(tensors: &Tensors<'_>, scheme: &dyn Scheme, module: &str) -> &'static str {
    let there = |mark: &&&str| tensors.by_name.contains_key(format!("{module}{mark}").as_str());
    scheme.marks().iter().find(there).copied().unwrap_or_default()
}

/// Refuses packed weights that the scheme does not know: read as plain ones they would be plausible garbage.
fn refuse_packed(tensors: &Tensors<'_>, name: &str, scheme: &dyn Scheme) -> Result<(), Error> {
    const ENDINGS: &[(&str, &str)] = &[
        (".trellis", "EXL3"),
        (".q_weight", "EXL2"),
        (".qweight", "GPTQ or AWQ"),
        (".weight_packed", "compressed-tensors"),
        (".weight_scale_inv", "FP8"),
        (".weight_scale", "FP8, BitNet or ModelOpt"),
        ("_blocks", "MXFP4"),
        (".scales", "MLX"),
        (".biases", "MLX"),
    ];
    let (file, _) = tensors.by_name[name];
    let place = || format!("{}: tensor `{name}`", file.path.display());
    let wanted = match scheme.marks() {
        [] => "config.json says nothing of packed weights".to_owned(),
        marks => format!("config.json asks for `{}`", marks.join("`, `")),
    };
    if let Some((_, what)) = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending)) {
        return Err(Problem::Unsupported(format!("looks like {what}, but {wanted}")).at(place()));
    }
    let packed = |dtype: &str| matches!(dtype, "U8" | "I8" | "U32" | "I32") || dtype.starts_with("F8");
    if name.ends_with(".weight") && packed(&file.tensors[name].dtype) {
        let what = format!("holds packed weights ({}), but {wanted} beside it", file.tensors[name].dtype);
        return Err(Problem::Unsupported(what).at(place()));
    }
    Ok(())
}

/// Files the tensors of a module that turned out to be plain.
fn plain_module(
    checkpoint: &mut Checkpoint,
    module: &Module<'_>,
    scheme: &dyn Scheme,
    experts: &mut Experts,
    (config, layers): (&Config, usize),
) -> Result<(), Error> {
    for ending in scheme.marks().iter().chain(scheme.companions()) {
        let name = format!("{}{ending}", module.name);
        if module.tensors.by_name.contains_key(name.as_str()) {
            let meaning = names::from_hf(&name, &config.architecture, layers);
            let canonical = meaning.canonical();
            let load = || plain_tensor(module.tensors, &name, &canonical, config, module.codecs);
            checkpoint.place(&name, meaning, experts, load)?;
        }
    }
    Ok(())
}

type Experts = BTreeMap<String, BTreeMap<usize, (String, Encoded)>>;

/// Bytes that are written anew.
fn unpacked_bytes(pieces: &[(&str, Meaning, Pieces<'_>)]) -> u64 {
    let bytes = |piece: &Piece<'_>| match piece {
        Piece::InPlace(_) => 0,
        Piece::Repack(repack) => repack.bytes(),
    };
    let pieces = pieces.iter().flat_map(|(.., found)| found);
    pieces.map(|(_, piece)| bytes(piece)).fold(0, u64::saturating_add)
}

/// Writes the pieces of a module and files them under its meaning.
fn place(
    checkpoint: &mut Checkpoint,
    name: &str,
    meaning: Meaning,
    pieces: Pieces<'_>,
    experts: &mut Experts,
) -> Result<(), Error> {
    for (ending, piece) in pieces {
        let file_name = format!("{name}{ending}");
        let tensor = match piece {
            Piece::InPlace(tensor) => tensor,
            Piece::Repack(repack) => repack.run(&format!("tensor `{name}`"))?,
        };
        let meaning = match &meaning {
            Meaning::Expert(canonical, _) if !["", ".scale"].contains(&ending.as_str()) => {
                let what = format!(
                    "`{canonical}`: experts whose columns are reordered or rotated are not supported"
                );
                return Err(Problem::Unsupported(what).at(format!("tensor `{name}`")));
            }
            other => names::with_ending(other, &ending),
        };
        checkpoint.place(&file_name, meaning, experts, || Ok(Some(tensor)))?;
    }
    Ok(())
}

/// A file and those of its tensors that belong to the model.
struct Shard {
    file: SafetensorsFile,
    names: Vec<String>,
}

impl Shard {
    /// The same file, mapped once more: what is only read to be written anew need not stay in memory.
    fn lend(&self) -> Result<SafetensorsFile, Error> {
        let bytes = map::map(&self.file.path)?;
        if bytes.len() != self.file.bytes.len() {
            return Err(
                Problem::expected("a file that nobody changes", "another length").at_path(&self.file.path)
            );
        }
        Ok(SafetensorsFile { bytes, ..self.file.clone() })
    }
}

/// The files of a model, tensors in them that its index does not list, and those that it lists but that are not there.
#[allow(clippy::type_complexity, reason = "three lists of one pass")]
fn weight_files(path: &Path) -> Result<(Vec<Shard>, Vec<String>, Vec<(Vec<String>, Error)>), Error> {
    let index = path.join("model.safetensors.index.json");
    let single = path.join("model.safetensors");
    let open = |path: &Path| SafetensorsFile::parse(map::map(path)?, path);
    let exl2 = output_files(path)?;
    if !exl2.is_empty() {
        let shard = |path| {
            let file = open(path)?;
            Ok(Shard { names: file.tensors.keys().cloned().collect(), file })
        };
        let shards = exl2.iter().map(|path| shard(path.as_path())).collect::<Result<_, Error>>()?;
        return Ok((shards, Vec::new(), Vec::new()));
    }
    if !index.is_file() {
        if !single.is_file() {
            let missing = Problem::Missing("model.safetensors or model.safetensors.index.json".into());
            return Err(missing.at_path(path));
        }
        let file = open(&single)?;
        let names = file.tensors.keys().cloned().collect();
        return Ok((vec![Shard { file, names }], Vec::new(), Vec::new()));
    }
    let by_file = read_index(&index)?;
    let (mut shards, mut unlisted, mut absent) = (Vec::new(), Vec::new(), Vec::new());
    for (name, tensors) in by_file {
        let file = match open(&path.join(&name)) {
            Ok(file) => file,
            Err(error) => {
                absent.push((tensors.into_iter().collect(), error));
                continue;
            }
        };
        unlisted.extend(file.tensors.keys().filter(|t| !tensors.contains(*t)).cloned());
        let (here, missing): (Vec<_>, Vec<_>) =
            tensors.into_iter().partition(|t| file.tensors.contains_key(t));
        for name in missing {
            let place = format!("{}: tensor `{name}`", file.path.display());
            let error = Problem::Missing("a tensor that the index says is here".into()).at(place);
            absent.push((vec![name], error));
        }
        shards.push(Shard { file, names: here });
    }
    Ok((shards, unlisted, absent))
}

/// `output.safetensors` or `output-00001-of-00003.safetensors` and its like: ExLlamaV2 writes them without an index, and
/// the index that lies beside them may be that of the model it started from.
fn output_files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    let io = |e| Problem::Io(e).at_path(path);
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io)? {
        let file = entry.map_err(io)?.path();
        let stem = file
            .file_name()
            .and_then(|name| name.to_str())
            .and_then(|name| name.strip_suffix(".safetensors"));
        if stem.is_some_and(|stem| stem == "output" || stem.starts_with("output-")) && file.is_file() {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
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

/// A plain tensor as the weight `canonical`: as it is, or changed so that the name means what it means everywhere.
fn plain_tensor(
    tensors: &Tensors<'_>,
    name: &str,
    canonical: &str,
    config: &Config,
    codecs: &Registry,
) -> Result<Option<Encoded>, Error> {
    let (file, _) = tensors.by_name[name];
    let place = || format!("{}: tensor `{name}`", file.path.display());
    let Some(tensor) = file.tensor(name, codecs)? else { return Ok(None) };
    let leaf = canonical.rsplit('.').next().unwrap_or(canonical);
    let changed = match leaf {
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
fn to_f32(
    tensor: &Encoded,
    shape: Shape,
    codecs: &Registry,
    change: impl Fn(f32) -> f32,
) -> Result<Encoded, Problem> {
    let bytes: Vec<u8> = tensor.decode().into_iter().flat_map(|x| change(x).to_le_bytes()).collect();
    let codec = codecs.by_name("f32").ok_or_else(|| Problem::Missing("a codec named f32".into()))?;
    Encoded::new("f32", shape, codec, bytes.into()).map_err(|e| Problem::Encoding(e.problem))
}

/// `[D, 1, kernel]` or, from MLX, `[D, kernel, 1]` -> `[D, kernel]`
fn without_middle_dimension(name: &str, tensor: Encoded) -> Result<Encoded, Problem> {
    let shape = match *tensor.shape().dims() {
        [channels, 1, kernel] | [channels, kernel, 1] => Shape::from([channels, kernel]),
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
