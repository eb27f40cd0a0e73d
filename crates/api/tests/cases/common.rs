//! Models from bytes, requests and what becomes of them.

use nibble_api::{
    Activations, Engine, Event, FinishReason, KvType, Model, Options, Registry, Request, RequestId,
    SamplerParams, Usage,
};
use nibble_testkit::tiny::Tiny;
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Writes a file for as long as `use_it` runs.
pub fn with_file<T>(bytes: &[u8], use_it: impl FnOnce(&Path) -> T) -> T {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("nibble-cases-{}-{number}.gguf", std::process::id()));
    fs::write(&path, bytes).unwrap();
    let result = use_it(&path);
    fs::remove_file(&path).ok();
    result
}

pub fn open(tiny: &Tiny) -> Model {
    with_file(&tiny.gguf(), |path| Model::open(path, &Registry::default()).unwrap())
}

/// Two threads, a context of 256, every number looked at.
pub fn options() -> Options {
    Options {
        device: "cpu".into(),
        threads: Some(2),
        context: Some(256),
        check_finite: true,
        ..Options::default()
    }
}

/// Nothing rounded but the weights.
pub fn exact() -> Options {
    Options { kv: KvType::F32, activations: Activations::F32, ..options() }
}

pub fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    let sampling = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    Request { prompt: prompt.to_vec(), max_tokens: Some(max_tokens), sampling, ..Request::default() }
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    pub tokens: Vec<u32>,
    /// Text as it came, event by event; the last one is what was held back.
    pub deltas: Vec<String>,
    pub reason: Option<FinishReason>,
    pub usage: Usage,
}

impl Done {
    pub fn text(&self) -> String {
        self.deltas.concat()
    }
}

/// Runs everything that was submitted to its end.
pub fn finish(engine: &mut Engine) -> BTreeMap<RequestId, Done> {
    let mut all: BTreeMap<RequestId, Done> = BTreeMap::new();
    let mut events = vec![];
    while !engine.is_idle() {
        engine.step(&mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Token { request, token, text } => {
                    let done = all.entry(request).or_default();
                    done.tokens.push(token);
                    done.deltas.push(text);
                }
                Event::Finished { request, text, reason, usage } => {
                    let done = all.entry(request).or_default();
                    done.deltas.push(text);
                    (done.reason, done.usage) = (Some(reason), usage);
                }
                Event::Failed { request, error, .. } => panic!("{request:?}: {error}"),
                Event::Prefill { .. } => {}
            }
        }
    }
    all
}

pub fn answer(engine: &mut Engine, request: Request) -> Done {
    let id = engine.submit(request).unwrap();
    finish(engine).remove(&id).unwrap()
}

/// The logits of every position.
pub fn logits(model: &Model, options: &Options, tokens: &[u32]) -> Vec<f32> {
    let mut all = vec![];
    model.start(options).unwrap().score(tokens, |_, row| all.extend_from_slice(row)).unwrap();
    assert!(all.iter().all(|l| l.is_finite()));
    all
}

pub fn distance(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
}
