//! Every op against the reference backend, alone and in small graphs, at sizes on both sides of tiles.

mod common;

use common::gpu;
use nibble_backend::{Backend, Error, Limits, PAGE_LEN, Sequence, Step};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::GpuOptions;
use nibble_graph::{Graph, Weight};
use nibble_quant::{Encoded, codec};
use nibble_tensor::Shape;
use nibble_testkit::ops::{graphs, limits, rows, run, run_plan};

/// Steps that differ in kernels: one row, few, many; several sequences; pages crossed.
const STEPS: [([usize; 2], usize); 5] =
    [([1, 0], 3), ([2, 1], 70), ([33, 5], 3), ([127, 1], 1), ([128, 129], 1)];

fn agree(options: GpuOptions) {
    let Some(gpu) = gpu(options) else { return };
    for (name, graph) in graphs() {
        let mut plan = gpu
            .compile(&graph, &Limits { check_finite: false, ..limits(257) })
            .unwrap_or_else(|e| panic!("{name}: {e}"));
        for (counts, steps) in STEPS {
            assert!(counts.iter().all(|c| c * steps <= 4 * PAGE_LEN));
            let expected = run(&Reference, &graph, counts, steps);
            let found = run_plan(&mut *plan, &graph, counts, steps);
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
fn every_graph_agrees_with_the_reference() {
    agree(GpuOptions::default());
}

#[test]
fn every_graph_agrees_with_the_reference_in_strict_mode() {
    agree(GpuOptions { strict: true, ..GpuOptions::default() });
}

#[test]
fn every_op_alone_agrees_with_the_reference() {
    agree(GpuOptions { apart: true, ..GpuOptions::default() });
}

#[test]
fn a_number_that_is_not_finite_is_named() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    let mut g = Graph::default();
    g.set_layer(Some(4));
    let x = rows(&mut g, "x", 40).unwrap();
    let mut bytes = vec![0u8; 160];
    bytes[4 * 17..4 * 18].copy_from_slice(&f32::INFINITY.to_le_bytes());
    let bad = Encoded::new("bad", Shape::from([40]), codec("f32"), bytes.into()).unwrap();
    let y = g.bias(x, Weight::new("bad", bad)).unwrap();
    g.output(y);
    let mut plan = gpu.compile(&g, &limits(4)).unwrap();
    let sequence = Sequence { pages: &[0], state: 0, prompt_len: 1 };
    let step =
        Step { tokens: &[1, 2], positions: &[0, 1], sequence: &[0, 0], sequences: &[sequence], wanted: &[] };
    let error = plan.run(&step).unwrap_err();
    assert!(matches!(error, Error::NotFinite { row: 0, column: 17, .. }), "{error}");
    assert!(error.to_string().starts_with("layer 4: bias (bad)"), "{error}");
}
