//! An opened model, and the engines started on it.

use crate::{
    DeviceOptions, Error, Kind, Remedy, builtin,
    check::{self, Checked},
    device, vocab,
};
use nibble_backend::{Activations, Backend, KvType, Limits, Memory, PAGE_LEN, Plan, Tracer, timed};
use nibble_backend_wgpu::{Cache, Tuning};
use nibble_chat::{Message, Template};
use nibble_engine::Engine;
use nibble_format::{Checkpoint, Type42};
use nibble_graph::Graph;
use nibble_model::Config;
use nibble_quant::Registry;
use nibble_tensor::Bytes;
use nibble_tokenizer::{EncodeOptions, Tokenizer};
use std::{
    path::Path,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

/// The context that is reserved when nobody asks for another: enough for a conversation, small enough for any machine.
const DEFAULT_CONTEXT: usize = 4096;

/// Slots of recurrent state for each sequence that can run: its own, one before the last token of its prompt and one
/// at its end, so that both the same prompt and the conversation's next turn are found again.
const STATES_PER_SEQUENCE: usize = 3;

/// More of them, for positions inside long prompts.
const STATE_CHECKPOINTS: usize = 4;

/// How an engine is to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// `auto`, or the name of one of [`crate::BACKENDS`].
    pub device: String,
    /// Threads of the CPU; all cores if `None`.
    pub threads: Option<usize>,
    /// Instruction set of the CPU; the best one if `None`.
    pub isa: Option<String>,
    /// A part of the GPU's name; the first one if `None`.
    pub gpu: Option<String>,
    /// Whether an answer may not depend on what shares the device; always so on the CPU.
    pub strict: bool,
    /// How work is handed to the device, one of [`Plan::modes`]; as it is fastest if `None`.
    pub mode: Option<String>,
    /// Tokens that prompt and answer of one sequence may have; the model's own, at most 4096, if `None`.
    pub context: Option<usize>,
    /// How keys and values are kept.
    pub kv: KvType,
    /// How inputs of matrix products are kept.
    pub activations: Activations,
    /// Tokens of a prompt in one step.
    pub prefill_chunk: Option<usize>,
    /// Sequences at once.
    pub sequences: usize,
    /// Rows of one step whose logits are wanted; at least one for each sequence.
    pub wanted: usize,
    /// Bytes that may be reserved; what the system has available if `None`.
    pub memory_budget: Option<u64>,
    /// Whether every op's result is searched for NaN and infinities; a run then fails at the first one and names it.
    pub check_finite: bool,
    /// Whether the CPU runs beside the device and every weight's result and every layer's is compared with its own; a run
    /// fails at the first one that is off by more than a quarter of its row's largest number, or by two thousandths with
    /// inputs, keys and values in 32 bits.
    pub check: bool,
    /// Who is told how long compiling and each part of a step takes.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// Where it is kept what was found out about a device's kernels; nowhere if `None`.
    pub cache: Option<Cache>,
    /// Whether a GPU's kernels are measured, to run in the way that is fastest on it.
    pub tuning: Tuning,
    /// Who is told what the user should know of a device that computes wrongly: a sentence each.
    pub warn: Option<fn(&str)>,
}

/// How a model is to be opened.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// What tensor type 42 means in a GGUF file.
    pub type_42: Type42,
    /// Who is told how long each part of it takes.
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl OpenOptions {
    fn format(&self) -> nibble_format::OpenOptions {
        let unpack_budget = nibble_backend_cpu::available_memory();
        nibble_format::OpenOptions { type_42: self.type_42, unpack_budget, keep_broken: false }
    }
}

/// Everything that keeps a model from being loaded: each tensor that is missing, cannot be read or has another shape than
/// it must have, where [`Model::open`] says the first alone. Nothing, if it can be loaded.
pub fn problems(path: &Path, codecs: &Registry, options: &OpenOptions) -> Vec<Error> {
    let format = nibble_format::OpenOptions { keep_broken: true, ..options.format() };
    match nibble_format::open_with(path, codecs, &format) {
        Ok(mut checkpoint) => {
            let broken = std::mem::take(&mut checkpoint.broken.errors).into_iter().map(Error::from);
            broken.chain(nibble_model::problems(&checkpoint).into_iter().map(Error::from)).collect()
        }
        Err(error) => vec![error.into()],
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            device: "auto".into(),
            threads: None,
            isa: None,
            gpu: None,
            strict: false,
            mode: None,
            context: None,
            kv: KvType::F16,
            activations: Activations::Auto,
            prefill_chunk: None,
            sequences: 1,
            wanted: 1,
            memory_budget: None,
            check_finite: false,
            check: false,
            tracer: None,
            cache: None,
            tuning: Tuning::Auto,
            warn: None,
        }
    }
}

/// A model that is open: its weights are mapped, its computation is known, nothing is reserved yet.
pub struct Model {
    /// What the file holds.
    pub checkpoint: Checkpoint,
    /// Its hyperparameters.
    pub config: Config,
    /// Its computation.
    pub graph: Graph,
    /// Its tokenizer.
    pub tokenizer: Option<Arc<Tokenizer>>,
}

impl Model {
    /// Opens a file or a directory, with the codecs that `codecs` knows.
    ///
    /// # Errors
    /// [`Kind::Load`] if it cannot be loaded, with the place and the reason.
    pub fn open(path: &Path, codecs: &Registry) -> Result<Self, Error> {
        Self::open_with(path, codecs, &OpenOptions::default())
    }

    /// [`Model::open`] with choices.
    ///
    /// # Errors
    /// As [`Model::open`].
    pub fn open_with(path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Self, Error> {
        let format = options.format();
        let open = || Ok(nibble_format::open_with(path, codecs, &format)?);
        Self::load(open, options.tracer.as_deref())
    }

    /// Opens the story model that is part of this library.
    ///
    /// # Errors
    /// Never, unless the library was built from a damaged file.
    pub fn builtin() -> Result<Self, Error> {
        Self::builtin_with(&OpenOptions::default())
    }

    /// [`Model::builtin`] with choices.
    ///
    /// # Errors
    /// As [`Model::builtin`].
    pub fn builtin_with(options: &OpenOptions) -> Result<Self, Error> {
        Self::load(builtin::checkpoint, options.tracer.as_deref())
    }

    /// Opens a GGUF file that is part of the program. `name` is for messages.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn from_bytes(bytes: &'static [u8], name: &str) -> Result<Self, Error> {
        let bytes = Bytes::from_static(bytes);
        Self::load(|| Ok(nibble_format::open_bytes(bytes, name, &Registry::default())?), None)
    }

    fn load(
        checkpoint: impl FnOnce() -> Result<Checkpoint, Error>,
        tracer: Option<&dyn Tracer>,
    ) -> Result<Self, Error> {
        let checkpoint = timed(tracer, "open and map", checkpoint)?;
        let built = timed(tracer, "build the graph", || nibble_model::build(&checkpoint))?;
        let nibble_model::Model { graph, config } = built;
        let tokenizer = timed(tracer, "read the tokenizer", || vocab::tokenizer(&checkpoint))?;
        Ok(Self { checkpoint, config, graph, tokenizer })
    }

    /// The backend that `options` names; for `auto` the first one that the model fits.
    ///
    /// # Errors
    /// [`Kind::Usage`] if this build or this machine has none of that name.
    pub fn backend(&self, options: &Options) -> Result<Box<dyn Backend>, Error> {
        let how = DeviceOptions {
            threads: options.threads,
            isa: options.isa.clone(),
            gpu: options.gpu.clone(),
            strict: options.strict,
            cache: options.cache.clone(),
            tuning: options.tuning,
        };
        let candidates = device::candidates(&options.device)?;
        let limits = self.limits(options);
        let (last, others) = candidates.split_last().expect("every machine has a CPU");
        for candidate in others {
            let Ok(backend) = (candidate.open)(&how) else { continue };
            let fits = |memory: Memory| check_budget(&memory, &limits, available(&*backend, options)).is_ok();
            if backend.memory(&self.graph, &limits).is_ok_and(fits) {
                return Ok(backend);
            }
        }
        (last.open)(&how)
    }

    /// What a plan for `options` must hold.
    pub fn limits(&self, options: &Options) -> Limits {
        let own = self.config.context.max(1);
        let context = options.context.unwrap_or(own.min(DEFAULT_CONTEXT));
        let sequences = options.sequences.max(1);
        let rows = options.prefill_chunk.unwrap_or(512).min(context).max(sequences).max(1);
        Limits {
            rows,
            wanted: options.wanted.max(sequences).min(rows),
            sequences,
            context,
            pages: sequences.saturating_mul(context.div_ceil(PAGE_LEN)),
            state_slots: if self.graph.is_recurrent() {
                STATES_PER_SEQUENCE.saturating_mul(sequences).saturating_add(STATE_CHECKPOINTS)
            } else {
                0
            },
            kv: options.kv,
            activations: options.activations,
            check_finite: options.check_finite,
        }
    }

    /// Compiles the model on its device and reserves all memory that it can need.
    ///
    /// # Errors
    /// [`Kind::Fit`] if it needs more than the budget, with both figures; [`Kind::Load`] if the device cannot run it.
    pub fn start(&self, options: &Options) -> Result<Engine, Error> {
        self.start_graph(&self.graph, options)
    }

    /// As [`Self::start`], for a graph made from the model's own: one that is tapped, say.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_graph(&self, graph: &Graph, options: &Options) -> Result<Engine, Error> {
        let plan = self.plan(graph, options)?;
        let mut engine = Engine::new(plan, graph, self.tokenizer.clone(), options.prefill_chunk);
        if let Some(tracer) = &options.tracer {
            engine.trace(Arc::clone(tracer));
        }
        Ok(engine)
    }

    /// What [`Self::start_graph`] builds its engine on, for callers who put something between.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn plan(&self, graph: &Graph, options: &Options) -> Result<Box<dyn Plan>, Error> {
        let (backend, limits) = (self.backend(options)?, self.limits(options));
        let tapped = options.check.then(|| check::tapped(graph));
        let graph = tapped.as_ref().unwrap_or(graph);
        let memory = backend.memory(graph, &limits)?;
        check_budget(&memory, &limits, available(&*backend, options))?;
        // What is left out for being wrong only makes a plan smaller.
        let warnings = timed(options.tracer.as_deref(), "self-check", || backend.prepare(graph, &limits))?;
        if let Some(warn) = options.warn {
            warnings.iter().for_each(|warning| warn(warning));
        }
        let mut plan = timed(options.tracer.as_deref(), "compile", || backend.compile(graph, &limits))?;
        if options.check {
            let cpu = self.backend(&Options { device: "cpu".into(), ..options.clone() })?;
            plan = Box::new(Checked::new(graph, plan, cpu.compile(graph, &limits)?));
        }
        if let Some(mode) = &options.mode {
            let known = plan.modes().join(", ");
            let what = format!(
                "mode: expected one of {known}, found `{mode}`, which {} has not",
                backend.describe()
            );
            plan.set_mode(mode).map_err(|_| Error::new(Kind::Usage, what))?;
        }
        Ok(plan)
    }

    /// The token that takes the place of the first one of each chunk of a long text, if the model wants one in front.
    pub fn leading_token(&self) -> Option<u32> {
        self.tokenizer.as_ref().filter(|t| t.adds_bos()).and_then(|t| t.bos())
    }

    /// The tokenizer.
    ///
    /// # Errors
    /// [`Kind::Load`] if the model came without.
    pub fn tokenizer(&self) -> Result<&Arc<Tokenizer>, Error> {
        self.tokenizer.as_ref().ok_or_else(|| {
            let path = self.checkpoint.path.display();
            Error::new(Kind::Load, format!("{path}: no tokenizer was found")).with(Remedy::Ids)
        })
    }

    /// Tokens that end an answer.
    pub fn stop_tokens(&self) -> Vec<u32> {
        self.tokenizer.as_ref().map_or(vec![], |t| t.end_tokens().to_vec())
    }

    /// The ids of a plain text, with the tokens that the model wants in front of it.
    ///
    /// # Errors
    /// [`Kind::Load`] if the model came without a tokenizer.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, Error> {
        Ok(self.tokenizer()?.encode(text, EncodeOptions::PROMPT))
    }

    /// Whether the model came with a chat template.
    pub fn has_template(&self) -> bool {
        self.checkpoint.chat_template.is_some()
    }

    /// The chat template. It is parsed when it is asked for: a broken one must not keep anybody from plain prompts.
    ///
    /// # Errors
    /// [`Kind::Usage`] if the model came without, [`Kind::Load`] if it cannot be parsed.
    pub fn template(&self) -> Result<Template, Error> {
        let Some(source) = &self.checkpoint.chat_template else {
            let path = self.checkpoint.path.display();
            let what = format!("{path}: the model has no chat template");
            return Err(Error::new(Kind::Usage, what).with(Remedy::PlainText));
        };
        let t = self.tokenizer()?;
        let piece = |id: Option<u32>| id.map(|id| String::from_utf8_lossy(t.piece(id)).into_owned());
        Ok(Template::parse(source, piece(t.bos()).as_deref(), piece(t.eos()).as_deref())?)
    }

    /// The ids of a conversation that the model is to answer, by its chat template.
    ///
    /// # Errors
    /// If there is no tokenizer or no template, or the template refuses the conversation.
    pub fn encode_chat(&self, messages: &[Message]) -> Result<Vec<u32>, Error> {
        let tokenizer = self.tokenizer()?;
        let template = self.template()?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
        let now = nibble_chat::DateTime::from_unix(now);
        let text = template.render(messages, &nibble_chat::Options { now, ..Default::default() })?;
        // The template writes the leading token itself where the model wants one.
        let bos = tokenizer.bos().filter(|&id| !text.as_bytes().starts_with(tokenizer.piece(id)));
        let mut ids = tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: true });
        if let (Some(bos), true) = (bos, tokenizer.adds_bos()) {
            ids.insert(0, bos);
        }
        Ok(ids)
    }
}

/// Bytes that may be reserved: what the user says, what the device has, what the system has.
fn available(backend: &dyn Backend, options: &Options) -> Option<u64> {
    let own = || backend.available_memory().or_else(nibble_backend_cpu::available_memory);
    options.memory_budget.or_else(own)
}

/// Refuses what needs more than the budget.
fn check_budget(memory: &Memory, limits: &Limits, budget: Option<u64>) -> Result<(), Error> {
    let Some(available) = budget else { return Ok(()) };
    let needed = memory.own();
    if needed <= available {
        return Ok(());
    }
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    Err(Error::new(
        Kind::Fit,
        format!(
            "memory: {} MiB are needed (weights {}, keys and values {} for a context of {}, state {}, activations {}), \
             but {} MiB are available",
            mib(needed),
            mib(memory.weights),
            mib(memory.kv),
            limits.context,
            mib(memory.state),
            mib(memory.activations),
            mib(available),
        ),
    )
    .with(Remedy::Memory))
}
