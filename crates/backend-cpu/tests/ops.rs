//! Every op against the reference backend, alone and in small graphs, at sizes on both sides of vectors and tiles.

mod common;

use common::cpu;
use nibble_backend::{Activations, Backend, Limits};
use nibble_backend_cpu::{Cpu, CpuOptions, kernels::Isa};
use nibble_backend_reference::Reference;
use nibble_graph::{Graph, Route, Scoring, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::{
    ops::{agrees, damaged, graphs, limits, rows, run, run_plan, run_two_tokens},
    uniform,
};

#[test]
fn every_graph_agrees_with_the_reference() {
    let cpu = cpu(2);
    for (name, graph) in graphs() {
        agrees(&name, &graph, &Reference, &mut |counts, steps| run(&cpu, &graph, counts, steps));
    }
}

#[test]
fn every_op_is_run() {
    let mut names: Vec<_> = graphs().iter().flat_map(|(_, g)| g.nodes.iter().map(|n| n.op.name())).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 25, "{names:?}");
}

#[test]
fn fusing_changes_nothing() {
    let plain = Cpu::new(CpuOptions { threads: Some(1), fuse: false, ..CpuOptions::default() });
    let fused = cpu(1);
    for (name, graph) in graphs() {
        assert!(run(&plain, &graph, [33, 5], 2) == run(&fused, &graph, [33, 5], 2), "{name}");
    }
}

/// Stacks of matrices that a plan writes anew by strips, with a last strip that is not full and a last chunk that ends inside.
#[test]
fn experts_by_strips_have_the_results_of_their_twins() {
    for name in ["tq1_0", "ptq1_0"] {
        let weight = |seed, dims: [usize; 3]| {
            let numbers = uniform(seed, dims.iter().product());
            Weight::new(name, Encoded::encode(name, Shape::from(dims), codec(name), &numbers, None).unwrap())
        };
        let mut g = Graph::default();
        let len = if name == "tq1_0" { 512 } else { 384 };
        let x = rows(&mut g, "x", len).unwrap();
        let logits = rows(&mut g, "logits", 7).unwrap();
        let choice = Route { used: 3, scoring: Scoring::Softmax, normalize: true, scale: 1.5 };
        let route = g.route(logits, None, choice).unwrap();
        let y = g.expert_matmul(x, route, weight(5, [7, 45, len])).unwrap();
        let y = g.combine(y, route).unwrap();
        g.output(y);
        let on = |isa| {
            let cpu = Cpu::new(CpuOptions { threads: Some(2), isa: Some(isa), ..CpuOptions::default() });
            let limits = Limits { activations: Activations::Auto, ..limits(90) };
            let mut plan = cpu.compile(&g, &limits).unwrap();
            [[85, 5], [3, 1]].map(|counts| run_plan(&mut *plan, &g, counts, 2))
        };
        let twin = on(Isa::Scalar);
        Isa::available().into_iter().for_each(|isa| assert!(on(isa) == twin, "{name} on {isa}"));
    }
}

#[test]
fn a_number_that_is_not_finite_is_named() {
    let graph = damaged().unwrap();
    for (fuse, ops) in [(false, "bias (bad)"), (true, "scale + bias (bad)")] {
        let cpu = Cpu::new(CpuOptions { fuse, ..CpuOptions::default() });
        let error = run_two_tokens(&mut *cpu.compile(&graph, &limits(4)).unwrap()).unwrap_err();
        let expected = format!("layer 4: {ops}: expected finite numbers, found inf in row 0, column 17");
        assert_eq!(error.to_string(), expected);
        let unchecked = Limits { check_finite: false, ..limits(4) };
        assert!(run_two_tokens(&mut *cpu.compile(&graph, &unchecked).unwrap()).is_ok());
    }
}
