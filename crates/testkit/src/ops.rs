//! Op cases: small graphs of every kind, and a driver that runs two sequences of them.

use nibble_backend::{Activations, Backend, KvType, Limits, PAGE_LEN, Plan, Sequence, Step};
use nibble_graph::{
    Activation, Attention, Error, Frequencies, GatedDelta, Graph, KvLayer, Linear, Op, Rope, RopeLayout,
    Rotation, Route, Scoring, Value, Weight,
};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;

use crate::uniform;

/// Tokens that the graphs know.
const VOCAB: usize = 300;

fn weight(name: &str, seed: u64, dims: &[usize]) -> Weight {
    let shape = Shape::new(dims).unwrap();
    let bytes: Vec<u8> = uniform(seed, shape.elements()).iter().flat_map(|x| x.to_le_bytes()).collect();
    Weight::new(name, Encoded::new(name, shape, codec("f32"), bytes.into()).unwrap())
}

/// Random rows of `width` numbers: one for each token.
///
/// # Errors
/// As [`Graph::embed`].
pub fn rows(g: &mut Graph, name: &str, width: usize) -> Result<Value, Error> {
    let tokens = g.tokens()?;
    g.embed(tokens, weight(name, name.len() as u64 + width as u64, &[VOCAB, width]))
}

fn rope(head_dim: usize, dims: usize, layout: RopeLayout, frequencies: Frequencies) -> Rope {
    Rope { head_dim, dims, layout, frequencies, magnitude: 1.2 }
}

fn inverse(dims: usize) -> Frequencies {
    Frequencies::Fixed((0..dims / 2).map(|i| 0.7f32.powi(i as i32)).collect())
}

fn attend(
    g: &mut Graph,
    heads: usize,
    kv_heads: usize,
    dims: (usize, usize),
    a: (Option<usize>, Option<f32>),
    sinks: bool,
) -> Result<(), Error> {
    let (key_dim, value_dim) = dims;
    let q = rows(g, "q", heads * key_dim)?;
    let k = rows(g, "key", kv_heads * key_dim)?;
    let v = rows(g, "value", kv_heads * value_dim)?;
    let cache = g.add_cache(KvLayer { kv_heads, key_dim, value_dim });
    let (window, soft_cap) = a;
    let sinks = sinks.then(|| weight("sinks", 8, &[heads]));
    let y =
        g.attention_with_sinks([q, k, v], sinks, Attention { cache, heads, scale: 0.4, window, soft_cap })?;
    g.output(y);
    Ok(())
}

fn delta(
    g: &mut Graph,
    key_heads: usize,
    value_heads: usize,
    dims: (usize, usize),
    grouped: bool,
) -> Result<(), Error> {
    let (key_dim, value_dim) = dims;
    let q = rows(g, "q", key_heads * key_dim)?;
    let k = rows(g, "key", key_heads * key_dim)?;
    let k = g.l2_norm(k, key_dim, 1e-6)?;
    let v = rows(g, "value", value_heads * value_dim)?;
    let decay = rows(g, "decay", value_heads)?;
    let beta = rows(g, "beta0", value_heads)?;
    let beta = g.activate(Activation::Sigmoid, beta)?;
    let decay = g.activate(Activation::Softplus, decay)?;
    let decay = g.scale(decay, -1.0)?;
    let state = g.add_state(value_heads * key_dim * value_dim);
    let d = GatedDelta { state, key_heads, value_heads, key_dim, value_dim, scale: 0.3, grouped };
    let y = g.gated_delta([q, k, v], decay, beta, d)?;
    g.output(y);
    Ok(())
}

fn biased_experts(g: &mut Graph) -> Result<(), Error> {
    let x = rows(g, "x", 48)?;
    let logits = g.matmul(x, weight("router", 3, &[7, 48]))?;
    let choice = Route { used: 3, scoring: Scoring::Softmax, normalize: true, scale: 1.0 };
    let route = g.route(logits, None, choice)?;
    let gate = g.expert_matmul(x, route, weight("gate", 5, &[7, 40, 48]))?;
    let gate = g.expert_bias(gate, route, weight("gate bias", 8, &[7, 40]))?;
    let up = g.expert_matmul(x, route, weight("up", 6, &[7, 40, 48]))?;
    let up = g.expert_bias(up, route, weight("up bias", 9, &[7, 40]))?;
    let up = g.activate(Activation::OssUp, up)?;
    let h = g.gated(Activation::OssGate, gate, up)?;
    let h = g.expert_matmul(h, route, weight("down", 7, &[7, 33, 40]))?;
    let h = g.expert_bias(h, route, weight("down bias", 10, &[7, 33]))?;
    let y = g.combine(h, route)?;
    g.output(y);
    g.output(up);
    Ok(())
}

fn experts(g: &mut Graph, scoring: Scoring, normalize: bool, bias: bool) -> Result<(), Error> {
    let x = rows(g, "x", 48)?;
    let logits = g.matmul(x, weight("router", 3, &[7, 48]))?;
    let bias = bias.then(|| weight("bias", 4, &[7]));
    let route = g.route(logits, bias, Route { used: 3, scoring, normalize, scale: 1.5 })?;
    let gate = g.expert_matmul(x, route, weight("gate", 5, &[7, 40, 48]))?;
    let up = g.expert_matmul(x, route, weight("up", 6, &[7, 40, 48]))?;
    let h = g.gated(Activation::Silu, gate, up)?;
    let h = g.expert_matmul(h, route, weight("down", 7, &[7, 33, 40]))?;
    let y = g.combine(h, route)?;
    g.output(y);
    Ok(())
}

/// A graph of each kind, with a name.
///
/// # Panics
/// If one breaks a rule of the graph.
pub fn graphs() -> Vec<(String, Graph)> {
    let mut all = Vec::new();
    let mut add = |name: &str, build: &dyn Fn(&mut Graph) -> Result<(), Error>| {
        let mut g = Graph::default();
        build(&mut g).unwrap_or_else(|e| panic!("{name}: {e}"));
        all.push((name.to_string(), g));
    };
    for (width, block) in [(8, 1), (24, 8), (128, 128), (512, 64)] {
        add(&format!("columns and rotations {width}"), &|g| {
            let x = rows(g, "x", width)?;
            let picked: Vec<f32> = (0..2 * width).map(|i| ((i * 7) % (width + 1)) as f32 - 1.0).collect();
            let bytes: Vec<u8> = picked.iter().flat_map(|i| i.to_le_bytes()).collect();
            let order = Encoded::new("order", Shape::from([2 * width]), codec("f32"), bytes.into()).unwrap();
            let rotation = |name: &str, len| Rotation { gain: weight(name, 9, &[len]), block };
            let linear = Linear {
                order: Some(Weight::new("order", order)),
                rotate: Some(rotation("signs", 2 * width)),
                parts: vec![weight("left", 5, &[2 * width, width]), weight("right", 6, &[2 * width, width])],
                unrotate: Some(rotation("signs after", 2 * width)),
                outputs: Some(width),
                scale: Some(weight("scale", 7, &[1])),
                bias: Some(weight("bias", 8, &[width])),
            };
            let y = g.linear(x, linear)?;
            g.output(y);
            Ok(())
        });
    }
    for width in [1, 17, 64, 257] {
        add(&format!("element-wise {width}"), &|g| {
            let a = rows(g, "a", width)?;
            let b = rows(g, "bb", width)?;
            let y = g.bias(a, weight("bias", 1, &[width]))?;
            let y = g.gain(y, weight("gain", 2, &[width]))?;
            let y = g.gain(y, weight("one", 3, &[1]))?;
            let y = g.mul(y, b)?;
            let twice = g.add(y, y)?;
            let y = g.soft_cap(twice, 0.5)?;
            let y = g.gated(Activation::GeluTanh, y, a)?;
            let z = g.activate(Activation::Relu2, b)?;
            let z = g.activate(Activation::Tanh, z)?;
            let y = g.add(z, y)?;
            g.output(y);
            g.output(twice);
            Ok(())
        });
        add(&format!("norms {width}"), &|g| {
            let x = rows(g, "x", 2 * width)?;
            let y = g.rms_norm(x, weight("norm", 1, &[width]), 1e-6)?;
            let z = g.l2_norm(y, width, 1e-6)?;
            let w = g.slice(z, width, width / 3, width - width / 3)?;
            [x, y, z, w].into_iter().for_each(|v| g.output(v));
            Ok(())
        });
        add(&format!("products {width}"), &|g| {
            let x = rows(g, "x", width)?;
            let h = g.rms_norm(x, weight("norm", 1, &[width]), 1e-6)?;
            let gate = g.matmul(h, weight("gate", 2, &[129, width]))?;
            let gate = g.bias(gate, weight("bias", 3, &[129]))?;
            let up = g.matmul(h, weight("up", 4, &[129, width]))?;
            let h = g.gated(Activation::Silu, gate, up)?;
            let h = g.matmul(h, weight("down", 5, &[width, 129]))?;
            let x = g.add(x, h)?;
            let wanted = g.wanted(x)?;
            let y = g.matmul(wanted, weight("head", 6, &[31, width]))?;
            g.output(y);
            g.output(x);
            Ok(())
        });
    }
    let dynamic = Frequencies::Dynamic { base: 100.0, factor: 2.0, original: 32 };
    for (head_dim, dims, frequencies) in [(6, 4, inverse(4)), (64, 64, inverse(64)), (24, 24, dynamic)] {
        for layout in [RopeLayout::Split, RopeLayout::Interleaved] {
            add(&format!("rope {dims} of {head_dim} {layout:?}"), &|g| {
                let x = rows(g, "x", 3 * head_dim)?;
                let y = g.rope(x, rope(head_dim, dims, layout, frequencies.clone()))?;
                g.output(y);
                Ok(())
            });
        }
    }
    for (heads, kv_heads, dims) in [(1, 1, (16, 16)), (4, 2, (64, 64)), (6, 1, (80, 48)), (3, 3, (20, 12))] {
        for a in [(None, None), (Some(9), None), (Some(70), Some(2.0))] {
            add(&format!("attention {heads}/{kv_heads} {dims:?} {a:?}"), &|g| {
                attend(g, heads, kv_heads, dims, a, false)
            });
        }
        add(&format!("attention with sinks {heads}/{kv_heads} {dims:?}"), &|g| {
            attend(g, heads, kv_heads, dims, (Some(40), None), true)
        });
    }
    add("attention with rotation", &|g| {
        let x = rows(g, "x", 64)?;
        let q = g.matmul(x, weight("q", 1, &[64, 64]))?;
        let k = g.matmul(x, weight("k", 2, &[32, 64]))?;
        let v = g.matmul(x, weight("v", 3, &[32, 64]))?;
        let q = g.rms_norm(q, weight("q_norm", 4, &[16]), 1e-6)?;
        let r = rope(16, 16, RopeLayout::Split, inverse(16));
        let (q, k) = (g.rope(q, r.clone())?, g.rope(k, r)?);
        let cache = g.add_cache(KvLayer { kv_heads: 2, key_dim: 16, value_dim: 16 });
        let a = Attention { cache, heads: 4, scale: 0.25, window: None, soft_cap: None };
        let y = g.attention(q, k, v, a)?;
        g.output(y);
        Ok(())
    });
    for width in [1, 40, 130] {
        add(&format!("short_conv {width}"), &|g| {
            let x = rows(g, "x", width)?;
            let y = g.short_conv(x, weight("conv", 1, &[width, 4]))?;
            g.output(y);
            Ok(())
        });
    }
    for (key_heads, value_heads, dims) in [(1, 1, (8, 8)), (2, 4, (16, 40)), (2, 6, (64, 64))] {
        for grouped in [true, false] {
            add(&format!("gated_delta {key_heads}/{value_heads} {dims:?} {grouped}"), &|g| {
                delta(g, key_heads, value_heads, dims, grouped)
            });
        }
    }
    add("softmax experts", &|g| experts(g, Scoring::Softmax, true, false));
    add("experts with biases", &biased_experts);
    add("sigmoid experts with a bias", &|g| experts(g, Scoring::Sigmoid, false, true));
    all
}

/// Limits for two sequences.
pub fn limits(rows: usize) -> Limits {
    Limits {
        rows,
        wanted: rows,
        sequences: 2,
        context: 256,
        pages: 8,
        state_slots: 2,
        kv: KvType::F32,
        activations: Activations::F32,
        check_finite: true,
    }
}

/// Runs two sequences in steps of `counts` rows each; returns all rows of all outputs.
///
/// # Panics
/// If the backend refuses.
pub fn run(backend: &dyn Backend, graph: &Graph, counts: [usize; 2], steps: usize) -> Vec<Vec<f32>> {
    let mut plan = backend.compile(graph, &limits(counts[0] + counts[1])).unwrap();
    run_plan(&mut *plan, graph, counts, steps)
}

/// The same on a plan for at least as many rows.
///
/// # Panics
/// If the plan refuses.
pub fn run_plan(plan: &mut dyn Plan, graph: &Graph, counts: [usize; 2], steps: usize) -> Vec<Vec<f32>> {
    (0..2).for_each(|slot| plan.clear_state(slot).unwrap());
    let pages: [Vec<u32>; 2] = [vec![1, 3, 5, 7], vec![6, 4, 2, 0]];
    let mut out = Vec::new();
    for step in 0..steps {
        let (mut tokens, mut positions, mut sequence) = (vec![], vec![], vec![]);
        for s in 0..2 {
            for i in 0..counts[s] {
                let position = step * counts[s] + i;
                tokens.push(((position * 37 + s * 101) % VOCAB) as u32);
                positions.push(position as u32);
                sequence.push(s as u32);
            }
        }
        let wanted: Vec<u32> = (0..tokens.len() as u32).collect();
        let sequences: Vec<_> =
            (0..2).map(|s| Sequence { pages: &pages[s], state: 1 - s as u32, prompt_len: 40 }).collect();
        plan.run(&Step {
            tokens: &tokens,
            positions: &positions,
            sequence: &sequence,
            sequences: &sequences,
            wanted: &wanted,
        })
        .unwrap();
        for (output, &value) in graph.outputs.iter().enumerate() {
            for row in 0..tokens.len() {
                let mut numbers = vec![0.0; graph.node(value).width];
                plan.read(output, row, &mut numbers).unwrap();
                out.push(numbers);
            }
        }
    }
    out
}

/// Rows of both sequences in a step, and steps, that differ in kernels: one row, few, many; pages crossed.
const STEPS: [([usize; 2], usize); 5] =
    [([1, 0], 3), ([2, 1], 70), ([33, 5], 3), ([127, 1], 1), ([128, 129], 1)];

/// The most rows that [`agrees`] has in a step.
pub const MOST_ROWS: usize = 257;

/// Checks that `found` makes of a graph what `reference` does, in steps of every kind.
///
/// # Panics
/// At the first number that is more than 3e-5 of its row's largest off.
pub fn agrees(
    name: &str,
    graph: &Graph,
    reference: &dyn Backend,
    found: &mut dyn FnMut([usize; 2], usize) -> Vec<Vec<f32>>,
) {
    for (counts, steps) in STEPS {
        assert!(counts.iter().all(|c| c * steps <= 4 * PAGE_LEN));
        let expected = run(reference, graph, counts, steps);
        for (row, (found, expected)) in found(counts, steps).iter().zip(&expected).enumerate() {
            let largest = expected.iter().fold(1.0f32, |max, e| max.max(e.abs()));
            for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                let close = (f - e).abs() <= 3e-5 * largest;
                assert!(close, "{name} {counts:?}: row {row}, column {i}: {f}, expected {e}");
            }
        }
    }
}

/// `scale`, then `bias (bad)` in layer 4, whose column 17 is infinite.
///
/// # Errors
/// As [`Graph::push`].
pub fn damaged() -> Result<Graph, Error> {
    let mut g = Graph::default();
    g.set_layer(Some(4));
    let x = rows(&mut g, "x", 40)?;
    let mut bytes = vec![0u8; 160];
    bytes[4 * 17..4 * 18].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let bad = Encoded::new("bad", Shape::from([40]), codec("f32"), bytes.into()).expect("40 numbers");
    let y = g.push(Op::Scale(2.0), &[x], &[])?;
    let y = g.bias(y, Weight::new("bad", bad))?;
    g.output(y);
    Ok(g)
}

/// Runs two tokens of one sequence, with nothing wanted.
///
/// # Errors
/// As [`Plan::run`].
pub fn run_two_tokens(plan: &mut dyn Plan) -> Result<(), nibble_backend::Error> {
    let sequence = Sequence { pages: &[0], state: 0, prompt_len: 1 };
    let (tokens, positions) = (&[1, 2], &[0, 1]);
    plan.run(&Step { tokens, positions, sequence: &[0, 0], sequences: &[sequence], wanted: &[] })
}
