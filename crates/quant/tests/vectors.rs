//! Every codec against the reference's own bytes and numbers, where the shared data is.

mod common;

use common::{Tensors, assert_same_bits, decode, encode};
use nibble_quant::{
    CODECS,
    grids::{self, Packed},
};

/// The codecs that need no vector: their bytes are the numbers.
const PLAIN: [&str; 2] = ["f32", "f64"];

#[test]
fn decode_equals_every_reference_vector() {
    let Some(dir) = nibble_testkit::shared_dir() else { return };
    // Those that are no GGUF types are checked with the directories that hold them, in `format/tests/vectors.rs`.
    for codec in CODECS.iter().filter(|c| c.spec().gguf.is_some()) {
        let name = codec.spec().name;
        if PLAIN.contains(&name) {
            continue;
        }
        if name == "i2_s" {
            let file = Tensors::read(&dir.join("vectors/bitnet_i2_s.safetensors"));
            let raw = file.bytes("raw");
            let (codes, tail) = raw.split_at(raw.len() - 32);
            let factor = f32::from_le_bytes(tail[..4].try_into().unwrap());
            let numbers: Vec<f32> = decode(*codec, codes).iter().map(|t| t * factor).collect();
            assert_same_bits(name, &numbers, &file.floats("dequant"));
            continue;
        }
        let family = if name.starts_with('p') { "prism" } else { "ggml" };
        let file = Tensors::read(&dir.join(format!("vectors/{family}_{name}.safetensors")));
        assert_same_bits(name, &decode(*codec, file.bytes("raw")), &file.floats("dequant"));
    }
}

#[test]
fn encode_equals_the_reference_quantizer() {
    let Some(dir) = nibble_testkit::shared_dir() else { return };
    let file = Tensors::read(&dir.join("vectors/ggml_quantize.safetensors"));
    let (input, importance) = (file.floats("input"), file.floats("imatrix"));
    let mut checked = 0;
    for codec in CODECS.iter().filter(|c| c.encoder().is_some()) {
        let upper = codec.spec().name.to_uppercase();
        for (suffix, importance) in [("", None), (".imatrix", Some(&importance[..]))] {
            let (raw, dequant) = (format!("raw.{upper}{suffix}"), format!("dequant.{upper}{suffix}"));
            if !file.has(&raw) {
                continue;
            }
            let bytes: Vec<u8> =
                input.chunks_exact(512).flat_map(|x| encode(*codec, x, importance)).collect();
            let wrong = bytes.iter().zip(file.bytes(&raw)).position(|(a, b)| a != b);
            assert_eq!((wrong, bytes.len()), (None, file.bytes(&raw).len()), "{raw}: first other byte");
            assert_same_bits(&dequant, &decode(*codec, &bytes), &file.floats(&dequant));
            checked += 1;
        }
    }
    assert!(checked >= 20, "only {checked} sets checked");
}

#[test]
fn q8_k_and_q8_1_sums_are_no_part_of_the_numbers() {
    for (name, sums) in [("q8_1", 2..4), ("q8_k", 260..292)] {
        let codec = nibble_quant::codec(name);
        let mut block = vec![1; codec.spec().block_bytes];
        let before = decode(codec, &block);
        block[sums].fill(0xFF);
        assert_same_bits(name, &decode(codec, &block), &before);
    }
}

#[test]
fn grids_are_those_of_the_reference() {
    let Some(dir) = nibble_testkit::shared_dir() else { return };
    let file = Tensors::read(&dir.join("vectors/ggml_iq_tables.safetensors"));
    let grids: [(&str, Packed, usize); 6] = [
        ("iq2xxs_grid", grids::PACKED_IQ2_XXS, 8),
        ("iq2xs_grid", grids::PACKED_IQ2_XS, 8),
        ("iq2s_grid", grids::PACKED_IQ2_S, 8),
        ("iq3xxs_grid", grids::PACKED_IQ3_XXS, 4),
        ("iq3s_grid", grids::PACKED_IQ3_S, 4),
        ("iq1s_grid", grids::PACKED_IQ1, 8),
    ];
    for (name, grid, numbers) in grids {
        let bits = 16 / numbers;
        for (i, expected) in file.bytes(name).chunks(numbers).enumerate() {
            let level = |n: usize| usize::from(grid.point(i) >> (bits * n)) & ((1 << bits) - 1);
            let found: Vec<u8> = (0..numbers).map(|n| grid.levels[level(n)] as u8).collect();
            assert_eq!(found, expected, "{name}[{i}]");
        }
    }
}
