//! Any bytes as a config.json, and its hyperparameters built into a model without weights.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nibble_format::Checkpoint;

fuzz_target!(|data: &[u8]| {
    let Ok((architecture, metadata)) = nibble_format::safetensors::read_config(data, None) else { return };
    let checkpoint = Checkpoint { architecture, metadata, ..Checkpoint::default() };
    assert!(nibble_model::build(&checkpoint).is_err(), "no model is without weights");
});
