//! Small models with seeded weights on the reference backend.

use nibble_backend::{Activations, Backend, KvType, Limits};
use nibble_backend_reference::Reference;
use nibble_engine::{Engine, Event, FinishReason, Request, RequestId, Usage};
use nibble_graph::{
    Activation, Attention, Frequencies, GatedDelta, Graph, KvLayer, Rope, RopeLayout, Value, Weight,
};
use nibble_quant::{Encoded, codec};
use nibble_sampler::SamplerParams;
use nibble_tensor::{Bytes, Shape};
use std::collections::BTreeMap;

pub const VOCAB: usize = 61;
const HIDDEN: usize = 32;
const HEAD: usize = 16;

/// What the layers of a test model are.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// Attention with fixed rotary frequencies.
    Attention,
    /// Attention over a window of 8.
    Window,
    /// Attention with dynamic frequencies beyond 20 tokens.
    Dynamic,
    /// A gated delta net with a short convolution, then attention.
    Hybrid,
}

pub const KINDS: [Kind; 4] = [Kind::Attention, Kind::Window, Kind::Dynamic, Kind::Hybrid];

fn weight(name: &str, dims: &[usize]) -> Weight {
    let seed = name.bytes().fold(7u64, |h, b| h.wrapping_mul(31).wrapping_add(u64::from(b)));
    let shape = Shape::new(dims).unwrap();
    let scale = 1.5 / (shape.row_len() as f32).sqrt();
    let numbers = nibble_testkit::uniform(seed, shape.elements());
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| (x * scale).to_le_bytes()).collect();
    Weight::new(name, Encoded::new(name, shape, codec("f32"), Bytes::from(bytes)).unwrap())
}

fn attention(g: &mut Graph, x: Value, kind: Kind) -> Value {
    let frequencies = match kind {
        Kind::Dynamic => Frequencies::Dynamic { base: 100.0, factor: 2.0, original: 20 },
        _ => Frequencies::Fixed((0..HEAD / 2).map(|i| 0.7f32.powi(i as i32)).collect()),
    };
    let rope = Rope { head_dim: HEAD, dims: HEAD, layout: RopeLayout::Split, frequencies, magnitude: 1.0 };
    let q = g.matmul(x, weight("q", &[2 * HEAD, HIDDEN])).unwrap();
    let k = g.matmul(x, weight("k", &[HEAD, HIDDEN])).unwrap();
    let v = g.matmul(x, weight("v", &[HEAD, HIDDEN])).unwrap();
    let q = g.rope(q, rope.clone()).unwrap();
    let k = g.rope(k, rope).unwrap();
    let cache = g.add_cache(KvLayer { kv_heads: 1, key_dim: HEAD, value_dim: HEAD });
    let window = (kind == Kind::Window).then_some(8);
    let a = Attention { cache, heads: 2, scale: 0.5, window, soft_cap: None };
    let h = g.attention(q, k, v, a).unwrap();
    g.matmul(h, weight("o", &[HIDDEN, 2 * HEAD])).unwrap()
}

fn delta(g: &mut Graph, x: Value) -> Value {
    let q = g.matmul(x, weight("dq", &[16, HIDDEN])).unwrap();
    let q = g.short_conv(q, weight("conv", &[16, 4])).unwrap();
    let q = g.l2_norm(q, 8, 1e-6).unwrap();
    let v = g.matmul(x, weight("dv", &[32, HIDDEN])).unwrap();
    let decay = g.matmul(x, weight("decay", &[4, HIDDEN])).unwrap();
    let decay = g.activate(Activation::Softplus, decay).unwrap();
    let decay = g.scale(decay, -0.3).unwrap();
    let beta = g.matmul(x, weight("beta", &[4, HIDDEN])).unwrap();
    let beta = g.activate(Activation::Sigmoid, beta).unwrap();
    let state = g.add_state(4 * 8 * 8);
    let d = GatedDelta {
        state,
        key_heads: 2,
        value_heads: 4,
        key_dim: 8,
        value_dim: 8,
        scale: 0.4,
        grouped: true,
    };
    let h = g.gated_delta([q, q, v], decay, beta, d).unwrap();
    g.matmul(h, weight("do", &[HIDDEN, 32])).unwrap()
}

pub fn graph(kind: Kind) -> Graph {
    let mut g = Graph::default();
    let tokens = g.tokens().unwrap();
    let mut x = g.embed(tokens, weight("embed", &[VOCAB, HIDDEN])).unwrap();
    if kind == Kind::Hybrid {
        let h = delta(&mut g, x);
        x = g.add(x, h).unwrap();
    }
    let h = attention(&mut g, x, kind);
    x = g.add(x, h).unwrap();
    let x = g.wanted(x).unwrap();
    let logits = g.matmul(x, weight("head", &[VOCAB, HIDDEN])).unwrap();
    g.output(logits);
    g
}

/// How the engine of a test is set up.
#[derive(Clone, Copy)]
pub struct Setup {
    pub kind: Kind,
    pub context: usize,
    pub sequences: usize,
    pub chunk: usize,
    pub pages: usize,
}

impl Default for Setup {
    fn default() -> Self {
        Self { kind: Kind::Attention, context: 256, sequences: 1, chunk: 512, pages: 16 }
    }
}

pub fn engine(setup: Setup) -> Engine {
    let graph = graph(setup.kind);
    let limits = Limits {
        rows: setup.chunk.max(setup.sequences),
        wanted: setup.sequences,
        sequences: setup.sequences,
        context: setup.context,
        pages: setup.pages,
        state_slots: if graph.is_recurrent() { 3 * setup.sequences + 4 } else { 0 },
        kv: KvType::F16,
        activations: Activations::Auto,
        check_finite: true,
    };
    let plan = Reference.compile(&graph, &limits).unwrap();
    Engine::new(plan, &graph, None, Some(setup.chunk))
}

/// `n` token ids that depend on the seed alone.
pub fn prompt(seed: u64, n: usize) -> Vec<u32> {
    let mut rng = nibble_testkit::Rng::new(seed);
    (0..n).map(|_| rng.below(VOCAB) as u32).collect()
}

pub fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    let sampling = SamplerParams { temperature: 0.0, ..SamplerParams::default() };
    Request { prompt: prompt.to_vec(), max_tokens: Some(max_tokens), sampling, ..Request::default() }
}

/// What became of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    pub tokens: Vec<u32>,
    pub reason: Option<FinishReason>,
    pub usage: Usage,
}

/// Runs everything that was submitted to its end.
pub fn finish(engine: &mut Engine) -> BTreeMap<RequestId, Done> {
    let mut done: BTreeMap<RequestId, Done> = BTreeMap::new();
    let mut events = vec![];
    while !engine.is_idle() {
        engine.step(&mut events).unwrap();
        for event in events.drain(..) {
            match event {
                Event::Token { request, token, .. } => done.entry(request).or_default().tokens.push(token),
                Event::Finished { request, reason, usage, .. } => {
                    let entry = done.entry(request).or_default();
                    entry.reason = Some(reason);
                    entry.usage = usage;
                }
                Event::Failed { request, error, .. } => panic!("{request:?}: {error}"),
                Event::Prefill { .. } => {}
            }
        }
    }
    done
}

pub fn answer(engine: &mut Engine, request: Request) -> Done {
    let id = engine.submit(request).unwrap();
    finish(engine).remove(&id).unwrap()
}
