//! `nibble inspect`: what a file holds, and what it will need.

use crate::{
    args::{InspectArgs, codecs},
    run::open,
    terminal::{self, size},
};
use nibble_api::{Error, Kind, Limits, Memory, Model, OpenOptions, Options, kept_on_gpu, problems};
use serde_json::json;
use std::{collections::BTreeMap, fmt::Write, path::Path};

/// Tensors of one encoding.
#[derive(Default)]
struct Encoding {
    tensors: usize,
    weights: u64,
    bytes: u64,
    /// How matrices lie on a GPU, in words: for each encoding, with their numbers and the bits of these.
    on_gpu: BTreeMap<&'static str, (String, u64, f64)>,
}

impl Encoding {
    fn bits(&self) -> f64 {
        self.bytes as f64 * 8.0 / self.weights.max(1) as f64
    }

    /// How a GPU keeps them, in words, and in how many bits a weight; nothing for vectors.
    fn on_gpu(&self) -> Option<(String, f64)> {
        let mut words: Vec<&str> = self.on_gpu.values().map(|(words, ..)| words.as_str()).collect();
        words.sort_unstable();
        words.dedup();
        let weights: u64 = self.on_gpu.values().map(|(_, weights, _)| weights).sum();
        let bits: f64 = self.on_gpu.values().map(|(_, weights, bits)| *weights as f64 * bits).sum();
        (weights > 0).then(|| (words.join("; "), bits / weights as f64))
    }
}

pub fn run(args: &InspectArgs) -> Result<(), Error> {
    let model = open(args.path.as_deref()).map_err(|error| all_problems(args.path.as_deref(), error))?;
    let options = args.device.options();
    let text = if args.graph {
        model.graph.to_string()
    } else {
        let (limits, memory) = plan(&model, &options)?;
        if args.json {
            format!("{}\n", report(&model, args.tensors, &limits, &memory))
        } else {
            page(&model, args.tensors, &limits, &memory)
        }
    };
    terminal::say(text)
}

/// The error that kept a model from being loaded, with everything else that would: one a line.
fn all_problems(path: Option<&Path>, error: Error) -> Error {
    let Some(path) = path.filter(|_| error.kind == Kind::Load) else { return error };
    let place = format!("{}: ", path.display());
    let mut problems: Vec<String> = problems(path, &codecs(), &OpenOptions::default())
        .iter()
        .map(|problem| {
            let problem = problem.to_string();
            problem.strip_prefix(&place).map_or(problem.clone(), str::to_owned)
        })
        .collect();
    problems.dedup();
    match problems.len() {
        0 | 1 => error,
        count => {
            let list = problems.join("\n  ");
            Error::new(error.kind, format!("{place}it cannot be loaded, for {count} reasons:\n  {list}"))
        }
    }
}

fn plan(model: &Model, options: &Options) -> Result<(Limits, Memory), Error> {
    let limits = model.limits(options);
    let memory = model.backend(options)?.memory(&model.graph, &limits)?;
    Ok((limits, memory))
}

/// The tokenizer in a few words: its kind where the file says it, the vocabulary's size, what ends an answer.
fn tokenizer(model: &Model) -> Option<String> {
    let tokenizer = model.tokenizer.as_ref()?;
    let key = |name| model.checkpoint.metadata.find_text(name).ok().flatten();
    let kind = key("tokenizer.ggml.model").map_or("tokenizer.json".into(), |kind| {
        let pre = key("tokenizer.ggml.pre").map_or(String::new(), |pre| format!(" ({pre})"));
        format!("{kind}{pre}")
    });
    let ends =
        tokenizer.end_tokens().iter().map(|&id| String::from_utf8_lossy(tokenizer.piece(id)).into_owned());
    let ends = ends.collect::<Vec<_>>().join(" ");
    Some(format!("{kind}, {} tokens, ends with {ends}", tokenizer.vocab_size()))
}

/// Whether there is a chat template, and what is wrong with it.
fn template(model: &Model) -> String {
    match (model.has_template(), model.template()) {
        (false, _) => "no".into(),
        (true, Ok(_)) => "yes".into(),
        (true, Err(e)) => format!("broken: {e}"),
    }
}

fn encodings(model: &Model) -> BTreeMap<&'static str, Encoding> {
    let mut all: BTreeMap<_, Encoding> = BTreeMap::new();
    for tensor in model.checkpoint.tensors.values() {
        let entry = all.entry(tensor.name()).or_default();
        entry.tensors += 1;
        entry.weights += tensor.shape().elements() as u64;
        entry.bytes += tensor.byte_len() as u64;
    }
    all
}

/// What a tensor is for, over all layers, and whether it is the matrix itself rather than what stands beside it:
/// `layer.3.attn.q.part.1` is `attn.q`, `layer.3.attn.q.scale` too.
fn role(name: &str) -> (&str, bool) {
    const BESIDE: &[&str] = &[".order", ".rotate", ".unrotate", ".scale", ".bias"];
    let inner =
        name.strip_prefix("layer.").and_then(|rest| rest.split_once('.')).map_or(name, |(_, inner)| inner);
    let inner = inner.split_once(".part.").map_or(inner, |(matrix, _)| matrix);
    let beside = BESIDE.iter().find_map(|ending| inner.strip_suffix(ending));
    (beside.unwrap_or(inner), beside.is_none())
}

/// The same by role; what stands beside a matrix counts as its bytes.
fn roles(model: &Model) -> BTreeMap<&str, Encoding> {
    let mut all: BTreeMap<_, Encoding> = BTreeMap::new();
    for (name, tensor) in &model.checkpoint.tensors {
        let (role, matrix) = role(name);
        let entry = all.entry(role).or_default();
        entry.tensors += usize::from(matrix);
        let weights = if matrix { tensor.shape().elements() as u64 } else { 0 };
        entry.weights += weights;
        if matrix && tensor.shape().dims().len() > 1 {
            let on_gpu = entry.on_gpu.entry(tensor.name()).or_insert_with(|| {
                let (words, bits) = kept_on_gpu(tensor);
                (words, 0, bits)
            });
            on_gpu.1 += weights;
        }
        entry.bytes += tensor.byte_len() as u64;
    }
    all
}

fn total(encodings: &BTreeMap<&'static str, Encoding>) -> Encoding {
    encodings.values().fold(Encoding::default(), |sum, e| Encoding {
        tensors: sum.tensors + e.tensors,
        weights: sum.weights + e.weights,
        bytes: sum.bytes + e.bytes,
        ..sum
    })
}

fn report(model: &Model, tensors: bool, limits: &Limits, memory: &Memory) -> serde_json::Value {
    let checkpoint = &model.checkpoint;
    let by_codec = encodings(model);
    let sum = total(&by_codec);
    let codecs: serde_json::Map<_, _> = by_codec
        .iter()
        .map(|(name, e)| {
            let value = json!({ "tensors": e.tensors, "weights": e.weights, "bytes": e.bytes, "bits_per_weight": e.bits() });
            (name.to_string(), value)
        })
        .collect();
    let kinds: serde_json::Map<_, _> = roles(model)
        .iter()
        .map(|(role, e)| {
            let mut value = json!({ "tensors": e.tensors, "weights": e.weights, "bytes": e.bytes, "bits_per_weight": e.bits() });
            if let Some((words, bits)) = e.on_gpu() {
                value["gpu"] = json!({ "form": words, "bits_per_weight": bits });
            }
            (role.to_string(), value)
        })
        .collect();
    let mut report = json!({
        "path": checkpoint.path.display().to_string(),
        "container": checkpoint.container,
        "architecture": checkpoint.architecture,
        "layers": model.config.layers,
        "context": model.config.context,
        "vocab": model.config.vocab,
        "weights": sum.weights,
        "bytes": sum.bytes,
        "bits_per_weight": sum.bits(),
        "encodings": codecs,
        "kinds": kinds,
        "tokenizer": tokenizer(model),
        "chat_template": template(model),
        "unused": checkpoint.unused,
        "memory": {
            "context": limits.context,
            "kv": limits.kv.to_string(),
            "mapped_weights": memory.mapped_weights,
            "own_weights": memory.weights,
            "kv_bytes": memory.kv,
            "state": memory.state,
            "activations": memory.activations,
            "own": memory.own(),
        },
    });
    if tensors {
        let list = checkpoint.tensors.iter().map(|(name, t)| {
            json!({ "name": name, "shape": t.shape().dims(), "encoding": t.name(), "bytes": t.byte_len() })
        });
        report["tensors"] = list.collect();
    }
    report
}

fn page(model: &Model, tensors: bool, limits: &Limits, memory: &Memory) -> String {
    let mut out = String::new();
    let checkpoint = &model.checkpoint;
    let by_codec = encodings(model);
    let sum = total(&by_codec);
    let mut line = |name: &str, value: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(out, "{name:<14}{value}");
    };
    line("model", checkpoint.path.display().to_string());
    line("container", checkpoint.container.into());
    let config = &model.config;
    line(
        "architecture",
        format!("{}, {} layers, width {}", checkpoint.architecture, config.layers, config.hidden),
    );
    line(
        "weights",
        format!("{} in {}, {:.2} bits a weight", count(sum.weights), size(sum.bytes), sum.bits()),
    );
    for (name, e) in &by_codec {
        line("", format!("{name:<8} {:>4} tensors  {:>10}  {:.2} bits", e.tensors, size(e.bytes), e.bits()));
    }
    line("kinds", "bits a weight, with scales and all that stands beside; as a GPU keeps them".into());
    for (role, e) in roles(model).iter().filter(|(role, _)| !role.ends_with("norm")) {
        let gpu = e.on_gpu().map_or(String::new(), |(words, bits)| format!("; GPU: {bits:.2}, {words}"));
        let file = format!("{:>4} tensors  {:>10}  {:.2} bits", e.tensors, size(e.bytes), e.bits());
        line("", format!("{role:<14} {file}{gpu}"));
    }
    line("context", format!("{} tokens", config.context));
    line("tokenizer", tokenizer(model).unwrap_or_else(|| "none".into()));
    line("chat template", template(model));
    if !checkpoint.unused.is_empty() {
        line("unused", checkpoint.unused.join(", "));
    }
    line("memory", format!("for a context of {} with {} keys and values", limits.context, limits.kv));
    line("  mapped", format!("{} weights, read in place", size(memory.mapped_weights)));
    line("  own", format!("{} in all", size(memory.own())));
    for (name, bytes) in [
        ("weights", memory.weights),
        ("keys, values", memory.kv),
        ("state", memory.state),
        ("activations", memory.activations),
    ] {
        line("", format!("{name:<13} {:>10}", size(bytes)));
    }
    if tensors {
        for (name, t) in &checkpoint.tensors {
            let _ = writeln!(
                out,
                "{name:<32} {:<20} {:<8} {}",
                t.shape().to_string(),
                t.name(),
                size(t.byte_len() as u64)
            );
        }
    }
    out
}

/// A number of weights as people say it: 135M, 7.34M, 30.5B.
fn count(n: u64) -> String {
    match n {
        1_000_000_000.. => format!("{:.2}B", n as f64 / 1e9),
        1_000_000.. => format!("{:.2}M", n as f64 / 1e6),
        _ => n.to_string(),
    }
}
