//! A layer of experts whose matrices are codes against the reference backend: rows that divide evenly among them, rows that all
//! take the same ones, experts without any; steps on both sides of every change of kernels.

mod common;

use common::gpu;
use nibble_backend::{Activations, Backend, Limits};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::GpuOptions;
use nibble_graph::{Activation, Graph, Route, Scoring, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::{
    ops::{limits, rows, run, run_plan},
    uniform,
};

/// Numbers of a row.
const WIDTH: usize = 64;

/// Numbers of an expert between its products.
const FFN: usize = 96;

const EXPERTS: usize = 11;

fn encoded(name: &str, codec_name: &str, seed: u64, dims: &[usize]) -> Weight {
    let shape = Shape::new(dims).unwrap();
    let numbers: Vec<f32> = uniform(seed, shape.elements()).iter().map(|x| 0.4 * x).collect();
    Weight::new(name, Encoded::encode(name, shape, codec(codec_name), &numbers, None).unwrap())
}

/// A layer that adds `favour` to the logits of its experts. What decides about these is not rounded before, so that backends
/// choose alike.
fn layer(choice: Route, favour: &[f32], biases: bool) -> Graph {
    let mut g = Graph::default();
    let x = rows(&mut g, "x", WIDTH).unwrap();
    let h = g.matmul(x, encoded("o", "f32", 1, &[WIDTH, WIDTH])).unwrap();
    let x = g.add(x, h).unwrap();
    let h = g.rms_norm(x, encoded("norm", "f32", 2, &[WIDTH]), 1e-5).unwrap();
    let bytes: Vec<u8> = favour.iter().flat_map(|x| x.to_le_bytes()).collect();
    let favour = Encoded::new("favour", Shape::from([EXPERTS]), codec("f32"), bytes.into()).unwrap();
    let logits = g.matmul(h, encoded("router", "f32", 3, &[EXPERTS, WIDTH])).unwrap();
    let logits = g.bias(logits, Weight::new("favour", favour)).unwrap();
    let bias = (choice.scoring == Scoring::Sigmoid).then(|| encoded("bias", "f32", 4, &[EXPERTS]));
    let route = g.route(logits, bias, choice).unwrap();
    let product = |g: &mut Graph, x, name: &str, seed, n, k| {
        let y = g.expert_matmul(x, route, encoded(name, "q4_0", seed, &[EXPERTS, n, k])).unwrap();
        match biases {
            true => g
                .expert_bias(y, route, encoded(&format!("{name} bias"), "f32", 10 + seed, &[EXPERTS, n]))
                .unwrap(),
            false => y,
        }
    };
    let gate = product(&mut g, h, "gate", 5, FFN, WIDTH);
    let up = product(&mut g, h, "up", 6, FFN, WIDTH);
    let h = g.gated(Activation::Silu, gate, up).unwrap();
    let h = product(&mut g, h, "down", 7, WIDTH, FFN);
    let h = g.combine(h, route).unwrap();
    let x = g.add(x, h).unwrap();
    let h = g.rms_norm(x, encoded("norm 2", "f32", 8, &[WIDTH]), 1e-5).unwrap();
    let y = g.matmul(h, encoded("head", "q4_0", 9, &[33, WIDTH])).unwrap();
    g.output(y);
    g
}

/// Choices, how much experts are favoured, and whether they have biases.
fn layers() -> Vec<(&'static str, Graph)> {
    let choice = |used, scoring, normalize| Route {
        used,
        scoring,
        normalize,
        scale: if normalize { 1.0 } else { 1.5 },
    };
    let softmax = choice(3, Scoring::Softmax, true);
    let only: Vec<f32> = (0..EXPERTS).map(|e| if e % 4 == 2 { 30.0 } else { -30.0 }).collect();
    vec![
        ("evenly", layer(softmax, &[0.0; EXPERTS], false)),
        ("all rows to the same", layer(softmax, &only, false)),
        ("all rows to one", layer(choice(1, Scoring::Softmax, false), &only, false)),
        ("by sigmoid", layer(choice(4, Scoring::Sigmoid, false), &[0.0; EXPERTS], false)),
        ("with biases", layer(softmax, &[0.0; EXPERTS], true)),
    ]
}

/// Rows of both sequences: one, few, many.
const COUNTS: [[usize; 2]; 9] =
    [[1, 0], [2, 0], [5, 3], [5, 4], [33, 0], [127, 0], [64, 64], [129, 0], [256, 256]];

fn agree(options: GpuOptions) {
    let Some(gpu) = gpu(options) else { return };
    for (name, graph) in layers() {
        let limits = Limits { activations: Activations::Auto, check_finite: false, ..limits(512) };
        assert_eq!(gpu.prepare(&graph, &limits), Ok(vec![]), "{name}: a kernel is wrong");
        let mut plan = gpu.compile(&graph, &limits).unwrap();
        for counts in COUNTS {
            let expected = run(&Reference, &graph, counts, 1);
            let found = run_plan(&mut *plan, &graph, counts, 1);
            let mut worst = 0f32;
            for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let largest = expected.iter().fold(1.0f32, |max, e| max.max(e.abs()));
                let off = found.iter().zip(expected).map(|(f, e)| (f - e).abs()).fold(0.0, f32::max);
                assert!(off <= 0.05 * largest, "{name} {counts:?}: row {row} is {off} off");
                worst = worst.max(off / largest);
            }
            eprintln!("{name} {counts:?}: {worst:.1e}");
        }
    }
}

#[test]
fn experts_agree_with_the_reference_however_rows_divide_among_them() {
    agree(GpuOptions::default());
}

#[test]
fn experts_agree_with_the_reference_in_strict_mode() {
    agree(GpuOptions { strict: true, ..GpuOptions::default() });
}
