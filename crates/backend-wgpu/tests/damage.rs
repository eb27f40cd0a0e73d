//! A number that is none is never lost on the way to the logits, where everybody looks.

mod common;

use common::{gpu, open};
use nibble_backend_wgpu::GpuOptions;
use nibble_testkit::damage;

#[test]
fn damage_in_any_weight_shows_in_the_logits_and_harms_nobody_else() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    damage::shows_in_logits(&gpu, |path| open(path).graph);
}

#[test]
fn a_sink_that_is_no_number_shows_in_its_head_alone() {
    let Some(gpu) = gpu(GpuOptions::default()) else { return };
    damage::shows_in_its_head(&gpu);
}
