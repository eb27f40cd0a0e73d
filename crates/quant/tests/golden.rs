//! Every codec against `golden/codecs.json`: a cut of the reference vectors that every checkout has.

mod common;

use common::{assert_same_bits, decode, encode, floats};
use nibble_quant::{CODECS, Registry};
use serde_json::Value;

/// Codecs of tensors that directories hold: their golden values are directories, in `format/tests`.
const CONTAINED: &[&str] =
    &["i2_s", "i8", "f8_e4m3", "f8_e5m2", "f8_e4m3_128", "f8_e4m3_64", "f8_e4m3_32", "mxfp8"];

fn golden() -> Value {
    let path = nibble_testkit::workspace_root().join("golden/codecs.json");
    serde_json::from_slice(&std::fs::read(path).expect("golden/codecs.json")).unwrap()
}

fn unhex(value: &Value) -> Vec<u8> {
    let text = value.as_str().expect("hex digits");
    let byte = |i| u8::from_str_radix(&text[i..i + 2], 16).expect("hex digits");
    (0..text.len()).step_by(2).map(byte).collect()
}

#[test]
fn decode_equals_the_golden_blocks_of_every_codec() {
    let golden = golden();
    for codec in CODECS.iter().filter(|c| !CONTAINED.contains(&c.spec().name)) {
        let name = codec.spec().name;
        let blocks = &golden["decode"][name];
        assert!(blocks.is_object(), "{name} has no golden blocks: add it to golden/codecs.py");
        assert_same_bits(name, &decode(*codec, &unhex(&blocks["raw"])), &floats(&unhex(&blocks["dequant"])));
    }
}

#[test]
fn encode_equals_the_golden_bytes() {
    let golden = golden();
    let (input, importance) = (&golden["encode"]["input"], &golden["encode"]["importance"]);
    let (input, importance) = (floats(&unhex(input)), floats(&unhex(importance)));
    let columns = importance.len();
    let registry = Registry::default();
    for (set, importance) in [("plain", None), ("weighted", Some(&importance[..]))] {
        let rows = golden["encode"][set].as_object().expect("rows by codec");
        assert!(!rows.is_empty());
        for (name, bytes) in rows {
            let codec = registry.by_name(name).expect("a codec");
            let rows = input.chunks_exact(columns);
            let encoded: Vec<u8> = rows.flat_map(|row| encode(codec, row, importance)).collect();
            assert_eq!(encoded, unhex(bytes), "{name}, {set}");
        }
    }
}
