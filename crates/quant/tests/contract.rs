//! What every codec promises, by a loop over the registry.

mod common;

use common::{assert_same_bits, decode, encode, random_bytes, unpack};
use nibble_quant::{CODECS, Kind, Registry, codec, families};
use nibble_testkit::Rng;
use std::collections::HashSet;

#[test]
fn names_and_ids_are_unique_and_found() {
    let registry = Registry::default();
    let names: HashSet<_> = registry.iter().map(|c| c.spec().name).collect();
    assert_eq!(names.len(), registry.iter().count());
    for codec in registry.iter() {
        let spec = codec.spec();
        if let Some(id) = spec.gguf {
            assert_eq!(registry.by_gguf(id).map(|c| c.spec()), Some(spec));
        }
        assert_eq!(registry.by_name(spec.name).map(|c| c.spec()), Some(spec));
        assert_eq!(spec.name, spec.name.to_lowercase());
    }
    assert!(registry.by_gguf(4).is_none(), "a removed type");
}

#[test]
fn random_bytes_never_panic_and_are_all_decoded() {
    let mut rng = Rng::new(7);
    for codec in Registry::default().iter() {
        let spec = codec.spec();
        for round in 0..40 {
            // The first rounds hold nothing but the extremes: not-a-number and infinite scales among them.
            let block = match round {
                0 => vec![0; spec.block_bytes],
                1 => vec![0xFF; spec.block_bytes],
                2 => [0x00, 0x7C].into_iter().cycle().take(spec.block_bytes).collect(),
                3 => [0x7C, 0x00].into_iter().cycle().take(spec.block_bytes).collect(),
                _ => random_bytes(&mut rng, spec.block_bytes),
            };
            let (mut once, mut again) = (vec![1.0; spec.block_len], vec![2.0; spec.block_len]);
            codec.decode(&block, &mut once);
            codec.decode(&block, &mut again);
            assert_same_bits(spec.name, &once, &again); // so no number was left as it was
        }
    }
}

#[test]
fn a_row_decodes_as_its_blocks_do() {
    let mut rng = Rng::new(5);
    for codec in Registry::default().iter() {
        let spec = codec.spec();
        let row = random_bytes(&mut rng, 131 * spec.block_bytes);
        let mut by_block = vec![0.0; 131 * spec.block_len];
        for (block, out) in row.chunks_exact(spec.block_bytes).zip(by_block.chunks_exact_mut(spec.block_len))
        {
            codec.decode(block, out);
        }
        assert_same_bits(spec.name, &decode(codec, &row), &by_block);
    }
}

#[test]
fn unpack_says_the_same_as_decode() {
    let mut rng = Rng::new(11);
    for codec in Registry::default().iter().filter(|c| c.kind() != Kind::Float) {
        let spec = codec.spec();
        for _ in 0..100 {
            let block = random_bytes(&mut rng, spec.block_bytes);
            let numbers = decode(codec, &block);
            let (codes, groups, group_len) = unpack(codec, &block);
            for (i, &number) in numbers.iter().enumerate() {
                let group = groups[i / group_len];
                let product = f64::from(group.scale) * f64::from(codes[i]);
                let exact = product + f64::from(group.offset);
                if !number.is_finite() || !exact.is_finite() {
                    continue;
                }
                // A zero that is no small integer is rounded when it is taken from a code, too.
                let ulps = if spec.name.starts_with("zero") { 2.0 } else { 1.0 };
                let size = product.abs() + f64::from(group.offset).abs();
                let tolerance = ulps * size * 2f64.powi(-23) + 1e-45;
                let off = (f64::from(number) - exact).abs();
                assert!(off <= tolerance, "{}: number {i} is {number}, not {exact}", spec.name);
            }
        }
    }
}

#[test]
fn unpack_reaches_every_code_that_a_codec_has() {
    let levels = |name: &str| match name {
        "q4_0" | "q4_1" | "q4_k" | "iq4_nl" | "iq4_xs" => 16,
        "q5_0" | "q5_1" | "q5_k" => 32,
        "q6_k" => 64,
        "q8_0" | "q8_1" | "q8_k" | "i8" => 256,
        "q2_k" | "q2_0" | "pq2_0" | "tq2_0" => 4,
        "q3_k" => 8,
        "q1_0" => 2,
        "tq1_0" | "ptq1_0" | "stq1_0" | "i2_s" => 3,
        "mxfp4" | "nvfp4" => 15, // both zeros are one code
        "iq1_s" | "iq1_m" | "iq2_xxs" | "iq2_xs" | "iq2_s" => 6, // three levels, shifted or signed
        "iq3_xxs" | "iq3_s" => 16,
        other => panic!("how many codes has {other}?"),
    };
    let mut rng = Rng::new(13);
    for codec in CODECS.iter().filter(|c| c.kind() != Kind::Float) {
        let spec = codec.spec();
        let mut seen = HashSet::new();
        for _ in 0..500 {
            seen.extend(unpack(*codec, &random_bytes(&mut rng, spec.block_bytes)).0);
        }
        assert_eq!(seen.len(), levels(spec.name), "{}", spec.name);
    }
}

#[test]
fn encode_comes_back_within_its_step() {
    // For each codec, the largest error of numbers in -1..1 relative to 1.
    let bound = |name: &str| match name {
        "f32" | "f64" => 0.0,
        "f16" | "bf16" | "q8_0" | "q8_k" => 0.006,
        "q6_k" => 0.05,
        "q5_0" | "q5_1" | "q5_k" => 0.08,
        "q4_0" | "q4_1" | "q4_k" | "iq4_nl" | "iq4_xs" => 0.15,
        "mxfp4" => 0.51, // its scale may leave 6/8 of the range: the largest numbers saturate
        "nvfp4" | "q3_k" => 0.3,
        "q2_k" => 0.45,
        "tq1_0" | "tq2_0" | "ptq1_0" | "q2_0" | "pq2_0" => 0.51,
        "q1_0" => 0.61,
        other => panic!("how coarse is {other}?"),
    };
    let x = nibble_testkit::uniform(17, 1024);
    for codec in CODECS.iter().filter(|c| c.encoder().is_some()) {
        let name = codec.spec().name;
        let y = decode(*codec, &encode(*codec, &x, None));
        let worst = x.iter().zip(&y).map(|(x, y)| (x - y).abs()).fold(0.0, f32::max);
        assert!(worst <= bound(name), "{name}: off by {worst}");
    }
}

#[test]
fn encode_takes_any_numbers_without_a_panic() {
    let odd = [0.0, -0.0, f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX, f32::MIN, 1e-45, -1e-38];
    let mut rng = Rng::new(19);
    for codec in CODECS.iter().filter(|c| c.encoder().is_some()) {
        for round in 0..40 {
            let pick = |rng: &mut Rng| if round < odd.len() { odd[round] } else { odd[rng.below(odd.len())] };
            let x: Vec<f32> = (0..256).map(|_| pick(&mut rng)).collect();
            encode(*codec, &x, None);
            encode(*codec, &x, Some(&vec![1.0; 256]));
            encode(*codec, &x, Some(&x));
        }
    }
}

#[test]
fn columns_without_importance_leave_finite_numbers() {
    let x = nibble_testkit::uniform(23, 512);
    let mut importance = vec![0.0; 512];
    importance[256..].fill(1.0); // one block counts for nothing
    for codec in CODECS.iter().filter(|c| c.encoder().is_some()) {
        let y = decode(*codec, &encode(*codec, &x, Some(&importance)));
        assert!(y.iter().all(|y| y.is_finite()), "{}", codec.spec().name);
    }
}

#[test]
fn encode_keeps_zeros() {
    for codec in CODECS.iter().filter(|c| c.encoder().is_some()) {
        let y = decode(*codec, &encode(*codec, &[0.0; 256], None));
        assert!(y.iter().all(|&y| y == 0.0), "{}", codec.spec().name);
    }
}

#[test]
fn floats_round_to_the_nearest_even() {
    let half = |x: f32| decode(codec("f16"), &encode(codec("f16"), &[x], None))[0];
    let ulp = 2f32.powi(-10);
    assert_eq!([half(1.0 + ulp / 2.0), half(1.0 + 1.5 * ulp)], [1.0, 1.0 + 2.0 * ulp]);
    let brain = |x: f32| decode(codec("bf16"), &encode(codec("bf16"), &[x], None))[0];
    let ulp = 2f32.powi(-7);
    assert_eq!([brain(1.0 + ulp / 2.0), brain(1.0 + 1.5 * ulp)], [1.0, 1.0 + 2.0 * ulp]);
}

#[test]
fn ternary_numbers_survive_every_ternary_codec() {
    let mut rng = Rng::new(29);
    let x: Vec<f32> = (0..512).map(|_| (rng.below(3) as f32 - 1.0) * 0.375).collect();
    for name in ["tq1_0", "tq2_0", "ptq1_0", "pq2_0", "q2_0"] {
        assert_eq!(decode(codec(name), &encode(codec(name), &x, None)), x, "{name}");
    }
}

#[test]
fn a_pq2_0_block_is_two_q2_0_blocks_under_one_scale() {
    let x = nibble_testkit::uniform(31, 128);
    let whole = encode(codec("pq2_0"), &x, None);
    let (scale, codes) = whole.split_at(2);
    let halves = [scale, &codes[..16], scale, &codes[16..]].concat();
    assert_same_bits("pq2_0", &decode(codec("pq2_0"), &whole), &decode(codec("q2_0"), &halves));
}

#[test]
fn code_3_of_two_bit_codecs_is_plus_two() {
    for name in ["q2_0", "pq2_0", "tq2_0"] {
        let codec = codec(name);
        let spec = codec.spec();
        let mut block = vec![0xE4; spec.block_bytes];
        let scale_at = if name == "tq2_0" { 64 } else { 0 };
        block[scale_at..scale_at + 2].copy_from_slice(&[0x00, 0x38]); // 0.5
        let mut numbers = decode(codec, &block);
        if name == "tq2_0" {
            // Its codes go across bytes: take one number of each plane.
            numbers = [0, 32, 64, 96].map(|i| numbers[i]).to_vec();
        }
        assert!(numbers.chunks_exact(4).all(|four| four == [-0.5, 0.0, 0.5, 1.0]), "{name}");
    }
}

#[test]
fn grouped_codes_come_back_whatever_their_bits() {
    let mut rng = Rng::new(37);
    for codec in nibble_quant::grouped::GROUPED {
        let spec = nibble_quant::Codec::spec(codec);
        let top = if codec.bits == 8 { 255 } else { (1 << codec.bits) - 1 };
        let codes: Vec<u8> = (0..spec.block_len).map(|_| (rng.bits() as u8) & top).collect();
        let mut block = vec![0xAA; spec.block_bytes];
        codec.put(0.5, 3.0, &codes, &mut block);
        let expected = |&q: &u8| match codec.second {
            nibble_quant::grouped::Second::Bias => f32::from(q) * 0.5 + 3.0,
            nibble_quant::grouped::Second::Zero => (f32::from(q) - 3.0) * 0.5,
        };
        assert_eq!(decode(codec, &block), codes.iter().map(expected).collect::<Vec<_>>(), "{}", spec.name);
    }
    assert_eq!(families().count(), nibble_quant::grouped::GROUPED.len() + nibble_quant::exl3::EXL3.len());
}
