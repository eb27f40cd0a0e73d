//! Every op against the reference backend, alone and in small graphs, at sizes on both sides of tiles.

mod common;

use common::gpu;
use nibble_backend::{Backend, Error, Limits};
use nibble_backend_reference::Reference;
use nibble_backend_wgpu::GpuOptions;
use nibble_testkit::ops::{MOST_ROWS, agrees, damaged, graphs, limits, run_plan, run_two_tokens};

fn agree(options: GpuOptions) {
    let Some(gpu) = gpu(options) else { return };
    for (name, graph) in graphs() {
        let limits = Limits { check_finite: false, ..limits(MOST_ROWS) };
        assert_eq!(gpu.prepare(&graph, &limits), Ok(vec![]), "{name}: a kernel is wrong");
        let mut plan = gpu.compile(&graph, &limits).unwrap_or_else(|e| panic!("{name}: {e}"));
        agrees(&name, &graph, &Reference, &mut |counts, steps| run_plan(&mut *plan, &graph, counts, steps));
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
    let mut plan = gpu.compile(&damaged().unwrap(), &limits(4)).unwrap();
    let error = run_two_tokens(&mut *plan).unwrap_err();
    assert!(matches!(error, Error::NotFinite { row: 0, column: 17, .. }), "{error}");
    let text = error.to_string();
    assert!(text.starts_with("layer 4: ") && text.contains("bias (bad): expected finite"), "{text}");
}
