//! What can be typed.

use clap::{ArgGroup, Args, Parser, Subcommand};
use nibble_api::{Activations, Error, Kind, KvType, Options, Registry, SamplerParams, Tuning};
use std::{ffi::OsString, path::PathBuf};

/// Runs large language models in 4 bits and below on your own machine.
#[derive(Parser)]
#[command(name = "nibble", version, max_term_width = 100, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Continue or answer a prompt; the text goes to stdout, everything else to stderr
    Run(RunArgs),
    /// Talk with a model
    Chat(ChatArgs),
    /// Show what a model file holds and what it will need
    Inspect(InspectArgs),
    /// Turn text into token ids, or back
    Tokenize(TokenizeArgs),
    /// Print or save the logits of every position of a prompt
    Logits(LogitsArgs),
    /// Compare a model's logits with those of a reference, and say PASS or FAIL
    Parity(ParityArgs),
    /// Measure how well a model foresees a text
    Perplexity(PerplexityArgs),
    /// Write a model in another encoding
    Quantize(QuantizeArgs),
    /// Measure over a text how much each column of a matrix matters, for `quantize --imatrix`
    Imatrix(ImatrixArgs),
    /// Measure speed and memory, beside the limits of the machine and beside others
    Bench(BenchArgs),
    /// List what models can run on here
    Devices,
}

#[derive(Args)]
pub struct DeviceArgs {
    /// Where to run: auto (a GPU that the model fits, else the CPU), gpu, cpu or reference
    #[arg(long, default_value = "auto", value_name = "NAME")]
    pub device: String,
    /// The GPU by a part of its name, as `nibble devices` lists them [default: the first one]
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<String>,
    /// Layers on the GPU, from the last one back; the others run on the CPU [default: as many as fit]
    #[arg(long, value_name = "N")]
    pub gpu_layers: Option<usize>,
    /// How work is handed to the GPU, as `nibble bench --gpu-modes` lists the ways [default: the fastest]
    #[arg(long, value_name = "NAME")]
    pub gpu_mode: Option<String>,
    /// Whether the GPU's kernels are measured to find their fastest way, about two seconds a start: auto (for prompts, what
    /// is not known yet, on real GPUs), off, or again (all of them anew, those of single tokens too)
    #[arg(long, env = "NIBBLE_GPU_TUNE", default_value = "auto", value_name = "WHEN", value_parser = tuning)]
    pub gpu_tune: Tuning,
    /// CPU threads [default: all cores]
    #[arg(long, short = 't', value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
    /// CPU instruction set, for comparisons [default: the best one here]
    #[arg(long, env = "NIBBLE_ISA", value_name = "NAME", hide = true)]
    pub isa: Option<String>,
    /// Tokens that prompt and answer may have together [default: the model's, at most 4096]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub ctx: Option<u32>,
    /// How keys and values are kept: f32, f16, q8_0 or q4_0
    #[arg(long, default_value_t = KvType::F16, value_name = "TYPE")]
    pub kv: KvType,
    /// Inputs of matrix products: `auto` (8-bit integers on the CPU), `i16` (two such integers: nearly exact, prompts
    /// take twice as long) or `f32` (exact, slower)
    #[arg(long, default_value = "auto", value_name = "MODE", value_parser = activations)]
    pub activations: Activations,
    /// Tokens of a prompt in one step; changes speed and memory, never the answer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub prefill_chunk: Option<u32>,
    /// Memory that may be reserved, such as 6G or 800M [default: what is available]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    pub memory_budget: Option<u64>,
    /// Look at the result of every op, and name the first that is NaN or infinite; slower
    #[arg(long)]
    pub check_finite: bool,
    /// Run the CPU beside the device, compare every weight's result and every layer's, and name the
    /// first that is off by more than a quarter of its row's largest number (2e-3 of it with
    /// `--activations f32 --kv f32`); much slower
    #[arg(long)]
    pub check: bool,
    /// The same answer whatever shares the device: slower on a GPU, always so on the CPU
    #[arg(long)]
    pub strict: bool,
}

impl DeviceArgs {
    /// As the library takes them.
    pub fn options(&self) -> Options {
        Options {
            device: self.device.clone(),
            threads: self.threads.map(usize::from),
            isa: self.isa.clone(),
            gpu: self.gpu.clone(),
            gpu_layers: self.gpu_layers,
            strict: self.strict,
            mode: self.gpu_mode.clone(),
            context: self.ctx.map(|n| n as usize),
            kv: self.kv,
            activations: self.activations,
            prefill_chunk: self.prefill_chunk.map(|n| n as usize),
            memory_budget: self.memory_budget,
            check_finite: self.check_finite,
            check: self.check,
            cache: crate::cache::devices(),
            tuning: self.gpu_tune,
            warn: Some(|warning| crate::terminal::warn(warning)),
            ..Options::default()
        }
    }
}

#[derive(Args)]
pub struct TraceArgs {
    /// Write where the time goes to this file, for ui.perfetto.dev or chrome://tracing
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
}

#[derive(Args)]
pub struct SamplingArgs {
    /// Most tokens to generate [default: until the model ends or the context is full]
    #[arg(long, short = 'n', value_name = "N")]
    pub max_tokens: Option<u32>,
    /// Randomness; 0 always takes the likeliest token
    #[arg(long, default_value_t = 0.8, value_name = "X", allow_negative_numbers = true)]
    pub temp: f32,
    /// Only the K likeliest tokens; 0 for all
    #[arg(long, default_value_t = 40, value_name = "K")]
    pub top_k: u32,
    /// Only the likeliest tokens that hold this share of the probability
    #[arg(long, default_value_t = 0.95, value_name = "P", allow_negative_numbers = true)]
    pub top_p: f32,
    /// Only tokens at least this likely, compared with the likeliest
    #[arg(long, default_value_t = 0.05, value_name = "P", allow_negative_numbers = true)]
    pub min_p: f32,
    /// Only tokens of typical surprise that hold this share; 1 for all
    #[arg(long, default_value_t = 1.0, value_name = "P", allow_negative_numbers = true)]
    pub typical_p: f32,
    /// Divides the logits of repeated tokens; 1 for none
    #[arg(long, default_value_t = 1.0, value_name = "X", allow_negative_numbers = true)]
    pub repeat_penalty: f32,
    /// Taken from a token's logit for each time it occurred
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: f32,
    /// Taken from a token's logit once it occurred
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: f32,
    /// Tokens that the three penalties look back
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub repeat_last_n: u32,
    /// DRY penalty on repeated sequences; 0 for none
    #[arg(long, default_value_t = 0.0, value_name = "X", allow_negative_numbers = true)]
    pub dry_multiplier: f32,
    /// Order of the stages, such as penalties,dry,top-k,typical,top-p,min-p,temperature
    #[arg(long, value_name = "LIST")]
    pub sampling_order: Option<String>,
    /// The same seed gives the same text [default: a new one each time]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Text that ends the answer; may be repeated
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

impl SamplingArgs {
    /// As the library takes them.
    ///
    /// # Errors
    /// If the order names an unknown stage.
    pub fn params(&self) -> Result<SamplerParams, Error> {
        let mut params = SamplerParams {
            temperature: self.temp,
            top_k: self.top_k as usize,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            frequency_penalty: self.frequency_penalty,
            presence_penalty: self.presence_penalty,
            repeat_last_n: self.repeat_last_n as usize,
            seed: self.seed.unwrap_or_else(fresh_seed),
            ..SamplerParams::default()
        };
        params.dry.multiplier = self.dry_multiplier;
        if let Some(order) = &self.sampling_order {
            params.order =
                nibble_api::parse_order(order).map_err(|e| Error::new(Kind::Usage, e.to_string()))?;
        }
        Ok(params)
    }
}

/// A seed that differs from run to run.
fn fresh_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |d| d.as_nanos() as u64)
}

#[derive(Args)]
pub struct RunArgs {
    /// A .gguf file or a model directory [default: the built-in story model]
    pub model: Option<OsString>,
    /// The prompt [default: standard input]
    pub prompt: Option<String>,
    /// Continue the prompt as plain text, without the model's chat template
    #[arg(long)]
    pub raw: bool,
    /// What the model is told before the prompt
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    pub system: Option<String>,
    /// The prompt as token ids: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', conflicts_with = "prompt")]
    pub tokens: Option<Vec<u32>>,
    /// Print one JSON object at the end instead of the text
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

#[derive(Args)]
pub struct ChatArgs {
    /// A .gguf file or a model directory [default: the built-in story model]
    pub model: Option<PathBuf>,
    /// What the model is told before the conversation
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    #[command(flatten)]
    pub sampling: SamplingArgs,
    #[command(flatten)]
    pub device: DeviceArgs,
    #[command(flatten)]
    pub trace: TraceArgs,
}

#[derive(Args)]
pub struct InspectArgs {
    /// A .gguf file or a model directory [default: the built-in story model]
    pub path: Option<PathBuf>,
    /// One JSON object
    #[arg(long)]
    pub json: bool,
    /// List every tensor
    #[arg(long)]
    pub tensors: bool,
    /// Print the computation, one op a line
    #[arg(long)]
    pub graph: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct TokenizeArgs {
    /// A .gguf file or a model directory
    pub model: PathBuf,
    /// The text, or the ids with --decode [default: standard input]
    pub text: Option<String>,
    /// One JSON object with ids and pieces
    #[arg(long)]
    pub json: bool,
    /// From ids (separated by commas or spaces) to text
    #[arg(long)]
    pub decode: bool,
    /// Add no tokens in front or behind, and take `<special>` words as plain text
    #[arg(long)]
    pub plain: bool,
}

#[derive(Args)]
pub struct LogitsArgs {
    /// A .gguf file or a model directory
    pub model: PathBuf,
    /// The prompt as token ids: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',', required_unless_present = "prompt")]
    pub tokens: Option<Vec<u32>>,
    /// The prompt as text
    #[arg(long, value_name = "TEXT", conflicts_with = "tokens")]
    pub prompt: Option<String>,
    /// Write `logits` F32 [T, V] to this safetensors file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object with the largest logits of each position
    #[arg(long)]
    pub json: bool,
    /// How many of them
    #[arg(long, default_value_t = 10, value_name = "N")]
    pub top: usize,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct ParityArgs {
    /// A .gguf file or a model directory [default: the built-in story model]
    pub model: Option<PathBuf>,
    /// What to compare with: reference, cpu, llama.cpp, transformers, mlx-lm, another model, a
    /// record, a logits file, or a file of log-probabilities
    #[arg(long, default_value = "reference", value_name = "WHAT")]
    pub against: String,
    /// Round nothing but the weights: the same as `--activations f32 --kv f32`
    #[arg(long)]
    pub exact: bool,
    /// Texts to compare instead of the built-in 32; each below a line `=== NAME`
    #[arg(long, value_name = "FILE")]
    pub prompts: Option<PathBuf>,
    /// Only so many of the texts
    #[arg(long, value_name = "N")]
    pub limit: Option<usize>,
    /// Greedy tokens after each text that are compared too
    #[arg(long, short = 'n', default_value_t = 16, value_name = "N")]
    pub max_tokens: usize,
    /// Bounds instead of the defaults: cosine, max-diff, kl, top1, layers, as in kl=0.1,top1=0.95
    #[arg(long, value_name = "LIST")]
    pub bounds: Option<String>,
    /// The tokens of a logits file that does not say them: 1,2,3
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub tokens: Option<Vec<u32>>,
    /// The llama-perplexity or the Python to use [default: the one in PATH]
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// Compare nothing: run the device of --against and keep what it says, to compare with later
    #[arg(long, value_name = "FILE", conflicts_with = "same_answer")]
    pub record: Option<PathBuf>,
    /// Run one request through all threads, chunks, neighbours and cache states, and compare the
    /// bytes of the answers
    #[arg(long)]
    pub same_answer: bool,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct PerplexityArgs {
    /// A .gguf file or a model directory
    pub model: PathBuf,
    /// The text
    #[arg(long, short = 'f', value_name = "FILE", required_unless_present = "kl")]
    pub text: Option<PathBuf>,
    /// Tokens between the starts of windows, as llama-perplexity's --ppl-stride
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub stride: Option<u32>,
    /// Only the first chunks
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Keep the log-probabilities, in the form that llama-perplexity reads too
    #[arg(long, value_name = "FILE")]
    pub save_logits: Option<PathBuf>,
    /// Compare with the kept log-probabilities of another model, such as the unquantized one
    #[arg(long, value_name = "FILE", conflicts_with_all = ["stride", "save_logits", "text"])]
    pub kl: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
#[command(group(ArgGroup::new("target").args(["to", "file_type"]).required(true)))]
pub struct QuantizeArgs {
    /// A .gguf file or a model directory
    pub input: PathBuf,
    /// The GGUF file to write, or the directory for `--to mlx`
    pub output: PathBuf,
    /// One encoding for all matrices, but at least 6 bits for the output: q8_0, q6_k, q5_k, q4_k, q4_0, ...; or mlx, a directory
    /// for MLX from one with safetensors
    #[arg(long, value_name = "CODEC")]
    pub to: Option<String>,
    /// A mix of encodings as llama.cpp makes it: q5_k_m, q4_k_m, q4_k_s, iq4_xs, q3_k_l, q2_k, ...
    #[arg(long = "type", value_name = "TYPE")]
    pub file_type: Option<String>,
    /// For `--to mlx`: bits of a code, 2, 3, 4, 5, 6 or 8 [default: 4]
    #[arg(long, value_name = "N")]
    pub bits: Option<u8>,
    /// For `--to mlx`: numbers under one scale, 32, 64 or 128 [default: 64]
    #[arg(long, value_name = "N")]
    pub group_size: Option<u8>,
    /// Lines of `pattern = encoding` that go first: a regular expression found anywhere in a tensor's GGUF name; the first match
    /// counts
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// A weight for each column: what `nibble imatrix` wrote, or llama.cpp in its GGUF form
    #[arg(long, value_name = "FILE")]
    pub imatrix: Option<PathBuf>,
    /// Replace the output file if it is there
    #[arg(long)]
    pub force: bool,
    /// Print for each tensor what the rounding cost: root mean square and largest error, cosine
    #[arg(long)]
    pub stats: bool,
    /// Print one object with all of it
    #[arg(long, conflicts_with = "stats")]
    pub json: bool,
}

#[derive(Args)]
pub struct ImatrixArgs {
    /// A .gguf file or a model directory, best the one that is to be quantized
    pub model: PathBuf,
    /// A text like those that the model will read
    #[arg(long, short = 'f', value_name = "FILE")]
    pub text: PathBuf,
    /// The file to write, which llama.cpp reads too
    #[arg(long, short, value_name = "FILE")]
    pub out: PathBuf,
    /// Only the first chunks of 512 tokens, or of `--ctx`
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub chunks: Option<u32>,
    /// Replace the output file if it is there
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub device: DeviceArgs,
}

#[derive(Args)]
pub struct BenchArgs {
    /// A .gguf file or a model directory [default: the built-in story model]
    pub model: Option<PathBuf>,
    /// Lengths of prompts to read; 0 for none [default: 512, or half of a short context]
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', value_parser = tokens)]
    pub prompt: Option<Vec<usize>>,
    /// Tokens to generate; 0 for none [default: 128, or a quarter of a short context]
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', value_parser = tokens)]
    pub generate: Option<Vec<usize>>,
    /// Sequences that generate at once [default: 1]
    #[arg(long, short, value_name = "LIST", value_delimiter = ',', value_parser = sequences)]
    pub batch: Option<Vec<usize>>,
    /// Tokens that are in the context before [default: 0]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = tokens)]
    pub depth: Option<Vec<usize>>,
    /// Takes of each row
    #[arg(long, short, default_value_t = 5, value_name = "N", value_parser = takes)]
    pub repeats: usize,
    /// Takes before them that do not count
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = takes)]
    pub warmup: usize,
    /// Empty the caches and open the model again before each take
    #[arg(long)]
    pub cold: bool,
    /// Only measure what the device can do at most
    #[arg(long, conflicts_with_all = ["cold", "against", "csv", "html"])]
    pub limits: bool,
    /// Only compare the ways in which work can be handed to a GPU: waiting, submitting, folding
    #[arg(long, conflicts_with_all = ["cold", "against", "csv", "html", "limits", "prompt", "batch", "depth"])]
    pub gpu_modes: bool,
    /// Only look whether memory grows, over so many steps and times opened and closed
    #[arg(long, value_name = "STEPS,TIMES", num_args = 0..=1, default_missing_value = "10000,200", value_parser = pair,
        conflicts_with_all = ["cold", "against", "csv", "html", "limits", "gpu_modes", "prompt", "generate", "batch", "depth"])]
    pub soak: Option<[usize; 2]>,
    /// Run others in turns on the same file: llama.cpp, ik_llama.cpp=FOLDER, openvino=PYTHON, mlx-lm=PYTHON
    #[arg(long, value_name = "PEER[=PATH]", value_delimiter = ',')]
    pub against: Vec<String>,
    /// Further arguments for one of them; may be repeated
    #[arg(long, value_name = "PEER=FLAGS", requires = "against", allow_hyphen_values = true)]
    pub against_flags: Vec<String>,
    /// Stop a take of theirs, with its load, after so many seconds
    #[arg(long, default_value_t = 600, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub against_limit: u64,
    /// One JSON object
    #[arg(long, conflicts_with = "csv")]
    pub json: bool,
    /// Comma-separated values
    #[arg(long)]
    pub csv: bool,
    /// Write a page with plots, too
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
}

/// A number of tokens that no context exceeds.
fn tokens(s: &str) -> Result<usize, String> {
    number(s, 1 << 24)
}

/// A number of sequences that no machine exceeds.
fn sequences(s: &str) -> Result<usize, String> {
    number(s, 1 << 12)
}

/// Steps and times of a soak.
fn pair(s: &str) -> Result<[usize; 2], String> {
    let (steps, times) = s.split_once(',').ok_or_else(|| format!("expected STEPS,TIMES, found `{s}`"))?;
    Ok([number(steps, 1 << 30)?, number(times, 1 << 20)?])
}

/// A number of takes that no patience exceeds.
fn takes(s: &str) -> Result<usize, String> {
    number(s, 1 << 16)
}

fn number(s: &str, most: usize) -> Result<usize, String> {
    let found = s.trim().parse().ok().filter(|&n| n <= most);
    found.ok_or_else(|| format!("expected a number up to {most}, found `{s}`"))
}

/// The codecs that the command knows: all built-in ones.
pub fn codecs() -> Registry {
    Registry::default()
}

fn activations(s: &str) -> Result<Activations, String> {
    match s {
        "auto" => Ok(Activations::Auto),
        "i16" => Ok(Activations::I16),
        "f32" => Ok(Activations::F32),
        _ => Err(format!("expected auto, i16 or f32, found `{s}`")),
    }
}

fn tuning(s: &str) -> Result<Tuning, String> {
    match s {
        "auto" => Ok(Tuning::Auto),
        "off" => Ok(Tuning::Off),
        "again" => Ok(Tuning::Again),
        _ => Err(format!("expected auto, off or again, found `{s}`")),
    }
}

/// A number of bytes: `800M`, `1.5G`, `4096`. K, M and G are powers of 1024.
fn bytes(s: &str) -> Result<u64, String> {
    let (digits, unit) = match s.trim().to_ascii_uppercase().trim_end_matches(['B', 'I']) {
        t if t.ends_with('K') => (t[..t.len() - 1].to_owned(), 1u64 << 10),
        t if t.ends_with('M') => (t[..t.len() - 1].to_owned(), 1 << 20),
        t if t.ends_with('G') => (t[..t.len() - 1].to_owned(), 1 << 30),
        t => (t.to_owned(), 1),
    };
    let number: f64 =
        digits.trim().parse().map_err(|_| format!("expected a size such as 6G, found `{s}`"))?;
    if !(number >= 0.0 && number * unit as f64 <= u64::MAX as f64) {
        return Err(format!("expected a size such as 6G, found `{s}`"));
    }
    Ok((number * unit as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(bytes("4096"), Ok(4096));
        assert_eq!(bytes("1.5G"), Ok(3 << 29));
        assert_eq!(bytes("800MiB"), Ok(800 << 20));
        assert_eq!(bytes("2 kb"), Ok(2048));
        assert!(bytes("-1G").is_err() && bytes("much").is_err() && bytes("nan").is_err());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
