//! A device of this program: `reference`, `cpu`, and whatever else `BACKENDS` lists.

use crate::{
    oracle,
    side::{Identity, Opening, Precision, Prompt, Side, SideEntry},
    trace::{Sketch, Trace},
    weights::Weights,
};
use nibble_api::{
    Activations, BACKENDS, Engine, Error, Event, KvType, Model, Options, Request, SamplerParams,
};
use nibble_measure::Hashing;
use std::sync::Arc;

/// Rows of logits held at once.
const WANTED: usize = 32;

/// Rows of a step whose values inside the layers are read too.
const TRACED: usize = 16;

/// The device that says what a file means.
pub const REFERENCE: &str = "reference";

pub(crate) const ENTRY: SideEntry = SideEntry {
    usage: "a device (reference, cpu, ...)",
    means: |spec| BACKENDS.iter().any(|backend| backend.name == spec),
    open: |spec, with| {
        let options = Options { device: spec.into(), ..with.options.clone() };
        Ok(Box::new(Device::new(with.model.clone(), &exact(&options))?))
    },
};

/// `options` with nothing rounded but the weights.
pub fn exact(options: &Options) -> Options {
    Options { kv: KvType::F32, activations: Activations::F32, ..options.clone() }
}

/// A model on a device.
pub struct Device {
    model: Arc<Model>,
    options: Options,
    engine: Engine,
    identity: Identity,
}

impl Device {
    /// `model` on the device and with the settings of `options`, whose context must hold every prompt.
    ///
    /// # Errors
    /// As [`Model::start`], and if the model's files cannot be read again to make their hash.
    pub fn new(model: Arc<Model>, options: &Options) -> Result<Self, Error> {
        let options = Options { wanted: WANTED, sequences: 1, ..options.clone() };
        let backend = model.backend(&options)?;
        let measured =
            nibble_measure::Identity::new(&model, &options, backend.as_ref(), &mut Hashing::default())?;
        let preferred = BACKENDS.first().filter(|_| options.device == "auto");
        let identity = Identity {
            side: preferred.map_or_else(|| options.device.clone(), |backend| backend.name.into()),
            text: measured.to_string(),
            json: serde_json::to_value(&measured).unwrap_or_default(),
        };
        let engine = model.start(&options)?;
        Ok(Self { model, options, engine, identity })
    }

    /// The model.
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }
}

impl Side for Device {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn precision(&self) -> Precision {
        let floats = self.options.activations == Activations::F32 || self.options.device == REFERENCE;
        if floats && self.options.kv == KvType::F32 { Precision::Exact } else { Precision::Rounded }
    }

    fn rows(&mut self, prompt: &Prompt, row: &mut dyn FnMut(usize, &[f32])) -> Result<(), Error> {
        Ok(self.engine.score_from(prompt.first, &prompt.tokens[..prompt.end], row)?)
    }

    fn greedy(&mut self, tokens: &[u32], count: usize) -> Result<Option<Vec<u32>>, Error> {
        let sampling = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
        let request =
            Request { prompt: tokens.to_vec(), max_tokens: Some(count), sampling, ..Request::default() };
        self.engine.submit(request)?;
        let (mut chosen, mut events) = (vec![], vec![]);
        while !self.engine.is_idle() {
            self.engine.step(&mut events)?;
            for event in events.drain(..) {
                match event {
                    Event::Token { token, .. } => chosen.push(token),
                    Event::Failed { error, .. } => return Err(error.into()),
                    _ => {}
                }
            }
        }
        Ok(Some(chosen))
    }

    fn trace(&mut self, texts: &[Vec<u32>]) -> Result<Option<Trace>, Error> {
        let mut graph = self.model.graph.clone();
        let taps = graph.tap();
        let context = texts.iter().map(Vec::len).max().unwrap_or(1).max(1);
        let options = Options {
            context: Some(context),
            prefill_chunk: Some(TRACED),
            wanted: TRACED,
            ..self.options.clone()
        };
        let mut engine = self.model.start_graph(&graph, &options)?;
        let mut sketches: Vec<Sketch> = taps.into_iter().map(|t| Sketch::new(t.name, t.layer)).collect();
        // The first output, the logits, comes last in the order of the computation.
        sketches.push(Sketch::new("logits".into(), None));
        let last = sketches.len() - 1;
        for (number, text) in texts.iter().enumerate() {
            engine.outputs(text, |output, position, numbers| {
                sketches[output.checked_sub(1).unwrap_or(last)].add(number, position, numbers);
            })?;
        }
        Ok(Some(Trace { sketches }))
    }

    fn check(&mut self, _prompt: &Prompt) -> Result<String, Error> {
        oracle::reproduces_golden(&self.options.device)
    }

    fn weights(&self) -> Option<Weights<'_>> {
        Some(Weights::Tensors(&self.model.checkpoint.tensors))
    }
}

/// The reference run of a model in another file.
pub(crate) fn reference_of(model: Model, with: &Opening<'_>) -> Result<Device, Error> {
    let options = Options { device: REFERENCE.into(), ..with.options.clone() };
    Device::new(Arc::new(model), &exact(&options))
}
