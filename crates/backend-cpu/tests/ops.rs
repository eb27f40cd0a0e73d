//! Every op against the reference backend, alone and in small graphs, at sizes on both sides of vectors and tiles.

mod common;

use common::cpu;
use nibble_backend::{Backend, Limits};
use nibble_backend_cpu::{Cpu, CpuOptions};
use nibble_backend_reference::Reference;
use nibble_testkit::ops::{agrees, damaged, graphs, limits, run, run_two_tokens};

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
