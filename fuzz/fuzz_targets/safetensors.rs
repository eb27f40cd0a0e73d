//! Any bytes as a safetensors file: every tensor taken, one row of each decoded.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use nibble_format::safetensors::SafetensorsFile;
use nibble_quant::Registry;
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let Ok(file) = SafetensorsFile::parse(Bytes::copy_from_slice(data), Path::new("fuzz")) else { return };
    let codecs = Registry::default();
    for name in file.tensors.keys() {
        let Ok(Some(tensor)) = file.tensor(name, &codecs) else { continue };
        if tensor.shape().elements() > 0 {
            let mut row = vec![0.0; tensor.shape().row_len()];
            tensor.decode_row(tensor.shape().rows() - 1, &mut row);
        }
    }
});
