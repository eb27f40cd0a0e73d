//! Whole graphs on the reference: small ones written by hand, whose results can be counted out.

use nibble_backend::{Backend, Error, KvType};
use nibble_backend_reference::{Reference, ReferencePlan};
use nibble_graph::{Attention, Graph, KvLayer, Op, Value, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::runner::{Runner, limits};

fn weight(name: &str, dims: &[usize], numbers: &[f32]) -> Weight {
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    Weight::new(name, Encoded::new(name, Shape::new(dims).unwrap(), codec("f32"), bytes.into()).unwrap())
}

/// Token t is the number t; the output is `build` of it.
fn graph(build: impl Fn(&mut Graph, Value) -> Value) -> Graph {
    let mut g = Graph::default();
    let tokens = g.tokens().unwrap();
    let numbers: Vec<f32> = (0..200).map(|t| t as f32).collect();
    let x = g.embed(tokens, weight("embed", &[200, 1], &numbers)).unwrap();
    let y = build(&mut g, x);
    let y = g.wanted(y).unwrap();
    g.output(y);
    g
}

fn runner(graph: &Graph, rows: usize, context: usize) -> Runner {
    Runner::new(Reference.compile(graph, &limits(rows, context, KvType::F32)).unwrap(), 1)
}

/// Mean of the values in the window: all scores are 0.
fn mean(window: Option<usize>) -> Graph {
    graph(|g, x| {
        let zero = g.scale(x, 0.0).unwrap();
        let cache = g.add_cache(KvLayer { kv_heads: 1, key_dim: 1, value_dim: 1 });
        g.attention(zero, zero, x, Attention { cache, heads: 1, scale: 1.0, window, soft_cap: None }).unwrap()
    })
}

#[test]
fn a_window_sees_the_same_in_prefill_and_in_decode() {
    let positions: Vec<u32> = (0..=10).collect();
    let graph = mean(Some(4));
    for chunk in [11, 1, 4, 10] {
        let mut runner = runner(&graph, 11, 64);
        runner.start(11);
        let outputs = runner.feed(&positions, chunk);
        assert_eq!(outputs[10], [8.5], "query at 10 in chunks of {chunk}: the mean of 7 to 10");
        assert_eq!(outputs[1], [0.5], "query at 1");
    }
}

#[test]
fn attention_reaches_over_pages() {
    let positions: Vec<u32> = (0..200).collect();
    for (window, expected) in [(None, 99.5), (Some(150), 124.5), (Some(1), 199.0)] {
        let mut runner = runner(&mean(window), 130, 200);
        runner.start(200);
        assert_eq!(runner.feed(&positions, 130)[199], [expected], "{window:?}");
    }
}

#[test]
fn a_short_convolution_remembers_over_steps_and_forgets_at_the_start() {
    let graph = graph(|g, x| g.short_conv(x, weight("conv", &[1, 3], &[1.0, 10.0, 100.0])).unwrap());
    let mut runner = runner(&graph, 4, 64);
    for chunk in [1, 2, 4] {
        runner.start(4);
        let outputs = runner.feed(&[1, 2, 3, 4], chunk).concat();
        assert_eq!(outputs, [100.0, 210.0, 321.0, 432.0], "chunks of {chunk}");
    }
}

#[test]
fn a_number_that_is_not_finite_stops_the_run_and_is_named() {
    let graph = graph(|g, x| {
        g.set_layer(Some(3));
        let y = g.scale(x, f32::MAX).unwrap();
        g.add(y, x).unwrap()
    });
    let mut plan = Reference.compile(&graph, &limits(3, 64, KvType::F32)).unwrap();
    let sequences = [nibble_backend::Sequence { pages: &[0], state: 0, prompt_len: 3 }];
    let step = nibble_backend::Step {
        tokens: &[0, 1, 2],
        positions: &[0, 1, 2],
        sequence: &[0, 0, 0],
        sequences: &sequences,
        wanted: &[2],
    };
    let error = plan.run(&step).unwrap_err();
    assert!(matches!(error, Error::NotFinite { row: 2, column: 0, .. }), "{error}");
    assert_eq!(
        error.to_string(),
        "layer 3: scale (embed): expected finite numbers, found inf in row 2, column 0"
    );
}

#[test]
fn memory_is_what_compile_reserves_and_overflow_is_refused() {
    let graph = mean(None);
    let fits = limits(8, 128, KvType::F32);
    let memory = Reference.memory(&graph, &fits).unwrap();
    assert_eq!(memory, ReferencePlan::new(&graph, &fits).map(|p| nibble_backend::Plan::memory(&p)).unwrap());
    assert_eq!((memory.kv, memory.state, memory.activations), (2 * 64 * 2 * 4, 0, 5 * 8 * 4));
    let huge = limits(usize::MAX / 2, 64, KvType::F32);
    assert!(matches!(Reference.compile(&graph, &huge), Err(Error::Memory { .. })));
    // The second can be counted, but no machine has it.
    for pages in [usize::MAX / 8, 1 << 45] {
        let huge = nibble_backend::Limits { pages, ..fits.clone() };
        assert!(matches!(Reference.compile(&graph, &huge), Err(Error::Memory { .. })));
    }
}

#[test]
fn an_expanded_graph_computes_the_same() {
    let graph = graph(|g, x| {
        let y = g.gated(nibble_graph::Activation::Silu, x, x).unwrap();
        g.soft_cap(y, 30.0).unwrap()
    });
    let simple = graph.expanded(|op| !matches!(op, Op::Gated(_) | Op::SoftCap(_))).unwrap();
    assert!(simple.nodes.len() > graph.nodes.len());
    let run = |graph: &Graph| {
        let mut runner = runner(graph, 8, 64);
        runner.start(8);
        runner.feed(&[0, 1, 2, 3, 4, 5, 6, 7], 8).concat()
    };
    for (a, b) in run(&graph).into_iter().zip(run(&simple)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
}
