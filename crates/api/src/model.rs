//! An opened model, and the engines started on it.

use crate::{
    DeviceOptions, Error, Kind, Remedy, builtin,
    check::{self, Checked},
    device,
    split::{Budget, Pair},
    vocab,
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
    /// Layers on the GPU, from the last one back, where the device is one: 0 takes the CPU, as many as the model has take the GPU
    /// alone; as many as fit if `None`.
    pub gpu_layers: Option<usize>,
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
    /// inputs, keys and values in 32 bits. A row in which rounding decides between experts that are a twentieth of the best
    /// one's share apart, or less, is told of and compared no further.
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
            gpu_layers: None,
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

/// A backend that a model fits.
pub struct Placed {
    /// The backend.
    pub backend: Box<dyn Backend>,
    /// Which layers are where, and their bytes, if more than one device shares them.
    pub note: Option<String>,
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
    /// As [`Self::place`].
    pub fn backend(&self, options: &Options) -> Result<Box<dyn Backend>, Error> {
        Ok(self.place(options)?.backend)
    }

    /// [`Self::backend`], with what there is to say of it.
    ///
    /// # Errors
    /// [`Kind::Usage`] if this build or this machine has none of that name; [`Kind::Fit`] if so many layers do not fit on the GPU.
    pub fn place(&self, options: &Options) -> Result<Placed, Error> {
        let how = DeviceOptions {
            threads: options.threads,
            isa: options.isa.clone(),
            gpu: options.gpu.clone(),
            strict: options.strict,
            cache: options.cache.clone(),
            tuning: options.tuning,
        };
        let candidates = device::candidates(&options.device)?;
        if options.gpu_layers == Some(0) && ["auto", "gpu"].contains(&options.device.as_str()) {
            return Ok(Placed { backend: device::cpu(&how)?, note: None });
        }
        let (last, others) = candidates.split_last().expect("every machine has a CPU");
        for candidate in others {
            let Ok(backend) = (candidate.open)(&how) else { continue };
            match candidate.name {
                "gpu" => {
                    if let Some(placed) = self.share(backend, || device::cpu(&how), options)? {
                        return Ok(placed);
                    }
                }
                _ if fits(&*backend, &self.graph, &self.limits(options), options) => {
                    return Ok(Placed { backend, note: None });
                }
                _ => {}
            }
        }
        if last.name == "gpu" {
            let open = || (last.open)(&how);
            // What does not fit at all is refused with figures, later.
            return match self.share(open()?, || device::cpu(&how), options)? {
                Some(placed) => Ok(placed),
                None => Ok(Placed { backend: open()?, note: None }),
            };
        }
        if let Some(wanted) = options.gpu_layers.filter(|&wanted| wanted > 0) {
            let what = format!("GPU layers: {wanted} are wanted, but `{}` finds no GPU", options.device);
            return Err(Error::new(Kind::Usage, format!("{what}; `nibble devices` lists what there is")));
        }
        Ok(Placed { backend: (last.open)(&how)?, note: None })
    }

    /// Layers on a GPU, and the others on the CPU: `None` if not even one fits.
    pub(crate) fn share(
        &self,
        gpu: Box<dyn Backend>,
        cpu: impl FnOnce() -> Result<Box<dyn Backend>, Error>,
        options: &Options,
    ) -> Result<Option<Placed>, Error> {
        let (layers, wanted) = (self.graph.layers(), options.gpu_layers);
        let limits = self.limits(options);
        if wanted.is_some_and(|n| n >= layers)
            || (wanted.is_none() && fits(&*gpu, &self.graph, &limits, options))
        {
            return Ok(Some(Placed { backend: gpu, note: None }));
        }
        let cpu = cpu()?;
        let each = [cpu.available_memory(), gpu.available_memory()];
        let budget = Budget { total: options.memory_budget, each };
        let mut pair = Pair { first: cpu, second: gpu, border: 0 };
        let most = pair.fill(&self.graph, &limits, &budget)?;
        let fitting = if most.is_some() { layers - pair.border } else { 0 };
        let memories = match (wanted, most) {
            (None, None) => return Ok(None),
            (None, Some(memories)) => memories,
            (Some(wanted), _) => {
                pair.border = layers - wanted;
                let memories = pair.memories(&self.graph, &limits)?;
                if wanted > fitting {
                    let mib = memories[1].own().div_ceil(1 << 20);
                    let what = format!(
                        "GPU layers: {wanted} of {layers} need {mib} MiB on {}, where {fitting} fit at most",
                        pair.second.describe()
                    );
                    return Err(Error::new(Kind::Fit, what).with(Remedy::Memory));
                }
                memories
            }
        };
        let note = Some(pair.note(layers, &memories));
        Ok(Some(Placed { backend: Box::new(pair), note }))
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

    /// As [`Self::limits`], with steps as long as the device likes them, if they fit and nobody says otherwise. When it is
    /// checked, the CPU takes the same steps.
    pub(crate) fn limits_on(&self, backend: &dyn Backend, graph: &Graph, options: &Options) -> Limits {
        let limits = self.limits(options);
        let is_free = options.prefill_chunk.is_none() && !options.check;
        let mut rows = if is_free { backend.prompt_rows() } else { limits.rows };
        while rows > limits.rows {
            let longer = Limits { rows: rows.min(limits.context), ..limits };
            if longer.rows > limits.rows && fits(backend, graph, &longer, options) {
                return longer;
            }
            rows /= 2;
        }
        limits
    }

    /// Compiles the model on its device and reserves all memory that it can need.
    ///
    /// # Errors
    /// [`Kind::Fit`] if it needs more than the budget, with both figures; [`Kind::Load`] if the device cannot run it.
    pub fn start(&self, options: &Options) -> Result<Engine, Error> {
        self.start_graph(&self.graph, options)
    }

    /// As [`Self::start`], on a backend that was placed before.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_on(&self, placed: Placed, options: &Options) -> Result<Engine, Error> {
        let plan = self.plan_on(placed, &self.graph, options)?;
        Ok(self.engine(plan, &self.graph, options))
    }

    /// As [`Self::start`], for a graph made from the model's own: one that is tapped, say.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn start_graph(&self, graph: &Graph, options: &Options) -> Result<Engine, Error> {
        let plan = self.plan(graph, options)?;
        Ok(self.engine(plan, graph, options))
    }

    fn engine(&self, plan: Box<dyn Plan>, graph: &Graph, options: &Options) -> Engine {
        let mut engine = Engine::new(plan, graph, self.tokenizer.clone(), options.prefill_chunk);
        if let Some(tracer) = &options.tracer {
            engine.trace(Arc::clone(tracer));
        }
        engine
    }

    /// What [`Self::start_graph`] builds its engine on, for callers who put something between.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub fn plan(&self, graph: &Graph, options: &Options) -> Result<Box<dyn Plan>, Error> {
        self.plan_on(self.place(options)?, graph, options)
    }

    fn plan_on(&self, placed: Placed, graph: &Graph, options: &Options) -> Result<Box<dyn Plan>, Error> {
        let backend = placed.backend;
        let tapped = options.check.then(|| check::tapped(graph));
        let graph = tapped.as_ref().unwrap_or(graph);
        let limits = self.limits_on(&*backend, graph, options);
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
            plan = Box::new(Checked::new(graph, plan, cpu.compile(graph, &limits)?, options.warn));
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
fn fits(backend: &dyn Backend, graph: &Graph, limits: &Limits, options: &Options) -> bool {
    let within = |memory: Memory| check_budget(&memory, limits, available(backend, options)).is_ok();
    backend.memory(graph, limits).is_ok_and(within)
}

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
