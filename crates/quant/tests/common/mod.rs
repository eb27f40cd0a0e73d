//! What the tests share: reading reference files, and comparing numbers bit for bit.
#![allow(dead_code)] // each test file uses a part

use nibble_quant::{Codec, Group, Kind, Unpacked};
use nibble_testkit::Rng;
use std::path::Path;

/// A safetensors file of the vectors folder: trusted, so read in the shortest way.
pub struct Tensors {
    head: serde_json::Value,
    body: Vec<u8>,
}

impl Tensors {
    pub fn read(path: &Path) -> Self {
        let mut file = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let body = file.split_off(8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize);
        Self { head: serde_json::from_slice(&file[8..]).unwrap(), body }
    }

    pub fn has(&self, name: &str) -> bool {
        self.head.get(name).is_some()
    }

    pub fn bytes(&self, name: &str) -> &[u8] {
        let place = |i: usize| self.head[name]["data_offsets"][i].as_u64().expect("a tensor") as usize;
        &self.body[place(0)..place(1)]
    }

    pub fn floats(&self, name: &str) -> Vec<f32> {
        floats(self.bytes(name))
    }
}

pub fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
}

pub fn decode(codec: &dyn Codec, raw: &[u8]) -> Vec<f32> {
    let spec = codec.spec();
    assert_eq!(raw.len() % spec.block_bytes, 0, "{}: not whole blocks", spec.name);
    let mut out = vec![f32::NAN; raw.len() / spec.block_bytes * spec.block_len];
    codec.decode_row(raw, &mut out);
    out
}

pub fn encode(codec: &dyn Codec, x: &[f32], importance: Option<&[f32]>) -> Vec<u8> {
    let spec = codec.spec();
    let mut out = vec![0xAA; x.len() / spec.block_len * spec.block_bytes];
    codec.encoder().expect("an encoder").encode_row(x, importance, &mut out);
    out
}

/// One block in its integer form.
pub fn unpack(codec: &dyn Codec, block: &[u8]) -> (Vec<i8>, Vec<Group>, usize) {
    let len = codec.spec().block_len;
    let group_len = if codec.kind() == Kind::Group16 { 16 } else { 32 };
    let (mut codes, mut groups) = (vec![0; len], vec![Group::default(); len / group_len]);
    codec.unpack(block, &mut Unpacked { codes: &mut codes, groups: &mut groups });
    (codes, groups, group_len)
}

pub fn assert_same_bits(what: &str, found: &[f32], expected: &[f32]) {
    assert_eq!(found.len(), expected.len(), "{what}: other length");
    for (i, (f, e)) in found.iter().zip(expected).enumerate() {
        let same = f.to_bits() == e.to_bits() || f.is_nan() && e.is_nan();
        assert!(same, "{what}: number {i} is {f:e} ({:#x}), not {e:e} ({:#x})", f.to_bits(), e.to_bits());
    }
}

pub fn random_bytes(rng: &mut Rng, n: usize) -> Vec<u8> {
    (0..n).map(|_| rng.bits() as u8).collect()
}
