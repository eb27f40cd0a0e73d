//! A codec from outside the crate works like a built-in one.

use nibble_quant::{Codec, Encoded, Group, Kind, Problem, Registry, Spec, Unpacked, decode_unpacked};
use nibble_tensor::{Bytes, Shape};

/// `made_up5`: 32 numbers of five levels (-2..=2), three bits each, under one single-precision scale.
///
/// Block, 16 bytes, little-endian: `d: f32` at 0; code i is three bits at 3i of the 12 bytes at 4, lowest first.
struct MadeUp5 {
    spec: &'static Spec,
}

const SPEC: Spec = Spec { name: "made_up5", block_len: 32, block_bytes: 16, gguf: Some(9001) };

impl Codec for MadeUp5 {
    fn spec(&self) -> &'static Spec {
        self.spec
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f32::from_le_bytes(block[..4].try_into().unwrap()));
        let bit = |k: usize| (block[4 + k / 8] >> (k % 8) & 1) as i8;
        for (i, code) in out.codes.iter_mut().enumerate() {
            *code = bit(3 * i) + 2 * bit(3 * i + 1) + 4 * bit(3 * i + 2) - 2;
        }
    }
}

fn made_up(spec: Spec) -> MadeUp5 {
    MadeUp5 { spec: Box::leak(Box::new(spec)) }
}

fn problem(registry: &mut Registry, spec: Spec) -> Problem {
    let Err(error) = registry.register(made_up(spec)) else { panic!("{spec:?} was taken") };
    assert_eq!(error.place, spec.name);
    error.problem
}

#[test]
fn a_codec_added_at_run_time_is_found_and_decodes() {
    let mut registry = Registry::default();
    registry.register(made_up(SPEC)).unwrap();
    let codec = registry.by_gguf(9001).expect("by its id");
    assert_eq!(registry.by_name("made_up5").map(|c| c.spec().gguf), Some(Some(9001)));
    assert!(Registry::default().by_name("made_up5").is_none(), "other registries stay as they are");

    // Codes 0, 1, 2, 3, 4 over and over, in steps of a quarter; two rows.
    let mut block = 0.25f32.to_le_bytes().to_vec();
    let stream = (0..32).fold(0u128, |stream, i| stream | (i as u128 % 5) << (3 * i));
    block.extend_from_slice(&stream.to_le_bytes()[..12]);
    let bytes = Bytes::from([&block[..], &block[..]].concat());
    let tensor = Encoded::new("t", Shape::from([2, 32]), codec, bytes).unwrap();
    let expected: Vec<f32> = (0..64).map(|i| 0.25 * ((i % 32 % 5) as f32 - 2.0)).collect();
    assert_eq!(tensor.decode(), expected);
    assert_eq!(tensor.name(), "made_up5");
}

#[test]
fn taken_names_and_ids_are_refused() {
    let mut registry = Registry::default();
    registry.register(made_up(SPEC)).unwrap();
    assert_eq!(problem(&mut registry, SPEC), Problem::Taken { what: "name" });
    let same_id = Spec { name: "made_up6", ..SPEC };
    assert_eq!(problem(&mut registry, same_id), Problem::Taken { what: "GGUF type id" });
    let built_in_name = Spec { name: "q4_0", gguf: None, ..SPEC };
    assert_eq!(problem(&mut registry, built_in_name), Problem::Taken { what: "name" });
    let built_in_id = Spec { name: "made_up7", gguf: Some(2), ..SPEC };
    assert_eq!(problem(&mut registry, built_in_id), Problem::Taken { what: "GGUF type id" });
}

/// A codec whose blocks serve several rows.
struct Strips {
    rows: usize,
    kind: Kind,
}

impl Codec for Strips {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "strips", gguf: None, ..SPEC }
    }

    fn kind(&self) -> Kind {
        self.kind
    }

    fn rows(&self) -> usize {
        self.rows
    }

    fn decode(&self, _block: &[u8], out: &mut [f32]) {
        out.fill(1.0);
    }
}

#[test]
fn rows_that_do_not_share_a_block_evenly_are_refused() {
    let mut registry = Registry::default();
    for (rows, kind) in [(0, Kind::Float), (3, Kind::Float), (4, Kind::Group32)] {
        let Err(error) = registry.register(Strips { rows, kind }) else { panic!("{rows} rows were taken") };
        assert!(matches!(error.problem, Problem::Geometry { .. }), "{rows} rows: {error}");
    }
    registry.register(Strips { rows: 4, kind: Kind::Float }).unwrap();
}

#[test]
fn unusable_geometry_is_refused() {
    let mut registry = Registry::default();
    let before = registry.iter().count();
    for (block_len, block_bytes) in [(0, 16), (32, 0), (24, 16), (33, 16)] {
        let problem = problem(&mut registry, Spec { block_len, block_bytes, ..SPEC });
        assert!(matches!(problem, Problem::Geometry { .. }), "{block_len} in {block_bytes}: {problem}");
    }
    assert_eq!(registry.iter().count(), before);
}
