//! Any bytes as a GGUF file: opened, built into a graph, one row of each tensor decoded.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nibble_quant::Registry;

fuzz_target!(|data: &[u8]| {
    let Ok(checkpoint) = nibble_format::open_bytes(Bytes::copy_from_slice(data), "fuzz", &Registry::default())
    else {
        return;
    };
    for tensor in checkpoint.tensors.values().filter(|t| t.shape().elements() > 0) {
        let mut row = vec![0.0; tensor.shape().row_len()];
        tensor.decode_row(tensor.shape().rows() - 1, &mut row);
    }
    let _ = nibble_model::build(&checkpoint);
});
