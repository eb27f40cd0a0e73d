//! Every op against the reference backend, alone and in small graphs, at sizes on both sides of vectors and tiles.

mod common;

use common::cpu;
use nibble_backend::{Backend, Limits, PAGE_LEN, Sequence, Step};
use nibble_backend_cpu::{Cpu, CpuOptions};
use nibble_backend_reference::Reference;
use nibble_graph::{Graph, Op, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::ops::{graphs, limits, rows, run};

#[test]
fn every_graph_agrees_with_the_reference() {
    let cpu = cpu(2);
    for (name, graph) in graphs() {
        for (counts, steps) in [([1, 0], 3), ([2, 1], 70), ([33, 5], 3), ([127, 1], 1), ([128, 129], 1)] {
            assert!(counts.iter().all(|c| c * steps <= 4 * PAGE_LEN));
            let expected = run(&Reference, &graph, counts, steps);
            let found = run(&cpu, &graph, counts, steps);
            for (row, (found, expected)) in found.iter().zip(&expected).enumerate() {
                let largest = expected.iter().fold(1.0f32, |max, e| max.max(e.abs()));
                for (i, (f, e)) in found.iter().zip(expected).enumerate() {
                    let close = (f - e).abs() <= 3e-5 * largest;
                    assert!(close, "{name} {counts:?}: row {row}, column {i}: {f}, expected {e}");
                }
            }
        }
    }
}

#[test]
fn every_op_is_run() {
    let mut names: Vec<_> = graphs().iter().flat_map(|(_, g)| g.nodes.iter().map(|n| n.op.name())).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), 24, "{names:?}");
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
    let mut g = Graph::default();
    g.set_layer(Some(4));
    let x = rows(&mut g, "x", 40).unwrap();
    let mut bytes = vec![0u8; 160];
    bytes[4 * 17..4 * 18].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let bad = Encoded::new("bad", Shape::from([40]), codec("f32"), bytes.into()).unwrap();
    let y = g.push(Op::Scale(2.0), &[x], &[]).unwrap();
    let y = g.bias(y, Weight::new("bad", bad)).unwrap();
    g.output(y);
    for (fuse, ops) in [(false, "bias (bad)"), (true, "scale + bias (bad)")] {
        let cpu = Cpu::new(CpuOptions { fuse, ..CpuOptions::default() });
        let mut plan = cpu.compile(&g, &limits(4)).unwrap();
        let sequence = Sequence { pages: &[0], state: 0, prompt_len: 1 };
        let step = Step {
            tokens: &[1, 2],
            positions: &[0, 1],
            sequence: &[0, 0],
            sequences: &[sequence],
            wanted: &[],
        };
        let error = plan.run(&step).unwrap_err();
        let expected = format!("layer 4: {ops}: expected finite numbers, found inf in row 0, column 17");
        assert_eq!(error.to_string(), expected);
        let unchecked = Limits { check_finite: false, ..limits(4) };
        assert!(cpu.compile(&g, &unchecked).unwrap().run(&step).is_ok());
    }
}
