//! Small floats: FP8, MXFP4, NVFP4 in the containers that hold them.

use super::{integers::compressed_settings, *};
use nibble_quant::codec;

/// The magnitudes of four-bit floats.
const FP4: [f32; 8] = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];

/// The largest E4M3 number.
const MOST: f32 = 448.0;

fn fp4(x: f32) -> u8 {
    nearest(&FP4, x.abs()) as u8 | u8::from(x < 0.0) << 3
}

/// The magnitudes of E4M3.
fn e4m3s() -> Vec<f32> {
    let mut numbers = vec![0.0; 127];
    codec("f8_e4m3").decode_row(&(0..127).collect::<Vec<u8>>(), &mut numbers);
    numbers
}

/// E4M3 codes of numbers.
fn e4m3(numbers: impl Iterator<Item = f32>) -> Vec<u8> {
    let magnitudes = e4m3s();
    numbers.map(|x| nearest(&magnitudes, x.abs()) as u8 | u8::from(x < 0.0) << 7).collect()
}

/// The power of two that brings a number below `2^(top + 1)`, as an E8M0 code and as a number.
fn power(most: f32, top: i32) -> (u8, f32) {
    let exponent = ((most.to_bits() >> 23) as i32 - 127 - top).clamp(-126, 127);
    ((exponent + 127) as u8, f32::from_bits(((exponent + 127) as u32) << 23))
}

/// Pairs of codes in a byte, the first in its low nibble.
fn pairs(codes: &[u8]) -> Vec<u8> {
    codes.chunks_exact(2).map(|pair| pair[0] | pair[1] << 4).collect()
}

/// Codes and scales of groups of 32 under powers of two.
fn mxfp4(m: &Matrix) -> (Vec<u8>, Vec<u8>) {
    let (mut codes, mut scales) = (vec![], vec![]);
    for numbers in m.numbers.chunks_exact(32) {
        let (code, scale) = power(largest(numbers), 2);
        scales.push(code);
        codes.extend(numbers.iter().map(|x| fp4(x / scale)));
    }
    (pairs(&codes), scales)
}

/// Codes and E4M3 scales of groups of 16, all under `factor`.
fn nvfp4(m: &Matrix, factor: f32) -> (Vec<u8>, Vec<u8>) {
    let magnitudes = e4m3s();
    let (mut codes, mut scales) = (vec![], vec![]);
    for numbers in m.numbers.chunks_exact(16) {
        let scale = nearest(&magnitudes, largest(numbers) / 6.0 / factor).max(1);
        scales.push(scale as u8);
        codes.extend(numbers.iter().map(|x| fp4(x / (magnitudes[scale] * factor))));
    }
    (pairs(&codes), scales)
}

fn mlx(plain: &Plain, mode: &'static str) -> Written {
    let (group, bits) = match mode {
        "nvfp4" => (16, 4),
        "mxfp4" => (32, 4),
        _ => (32, 8),
    };
    let settings = json!({"group_size": group, "bits": bits, "mode": mode});
    plain.directory(("quantization", settings), |m| {
        let (codes, scales) = match mode {
            "nvfp4" => nvfp4(m, 1.0),
            "mxfp4" => mxfp4(m),
            _ => {
                let of = |numbers: &[f32]| power(largest(numbers), 7);
                let scales: Vec<_> = m.numbers.chunks_exact(32).map(of).collect();
                let scaled = m.numbers.iter().enumerate().map(|(i, x)| x / scales[i / 32].1);
                (e4m3(scaled), scales.iter().map(|(code, _)| *code).collect())
            }
        };
        Some(vec![
            (".weight", "U32", vec![m.rows, m.columns * bits / 32], codes),
            (".scales", "U8", vec![m.rows, m.columns / group], scales),
        ])
    })
}

/// Scales over what they are for: blocks of rows and columns, rows, or all.
fn fp8(m: &Matrix, rows: usize, columns: usize) -> (Vec<u8>, Vec<f32>) {
    let across = m.columns.div_ceil(columns);
    let mut scales = vec![0f32; m.rows.div_ceil(rows) * across];
    let place = |i: usize| i / m.columns / rows * across + i % m.columns / columns;
    for (i, x) in m.numbers.iter().enumerate() {
        let scale = &mut scales[place(i)];
        *scale = scale.max(x.abs() / MOST);
    }
    (e4m3(m.numbers.iter().enumerate().map(|(i, x)| x / scales[place(i)])), scales)
}

fn fp8_directory(
    plain: &Plain,
    settings: Json,
    ending: &'static str,
    block: impl Fn(&Matrix) -> [usize; 2],
    dims: impl Fn(&Matrix) -> Vec<usize>,
) -> Written {
    plain.directory(("quantization_config", settings), |m| {
        let [rows, columns] = block(m);
        let (codes, scales) = fp8(m, rows, columns);
        let parts = vec![
            (".weight", "F8_E4M3", vec![m.rows, m.columns], codes),
            (ending, "F32", dims(m), f32s(&scales)),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

fn e5m2(plain: &Plain) -> Written {
    plain.directory(("quantization_config", json!({"quant_method": "fp8"})), |m| {
        let scale = m.largest() / 16384.0;
        let round = |x: &f32| {
            let bits = f16::from_f32(x / scale).to_bits();
            ((bits + 0x7F + (bits >> 8 & 1)) >> 8) as u8
        };
        let parts = vec![
            (".weight", "F8_E5M2", vec![m.rows, m.columns], m.numbers.iter().map(round).collect()),
            (".weight_scale", "F32", vec![1], f32s(&[scale])),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

fn compressed_mxfp4(plain: &Plain) -> Written {
    let weights =
        json!({"num_bits": 4, "group_size": 32, "symmetric": true, "type": "float", "strategy": "group"});
    plain.directory(("quantization_config", compressed_settings("mxfp4-pack-quantized", weights)), |m| {
        let (codes, scales) = mxfp4(m);
        let parts = vec![
            (".weight_packed", "U8", vec![m.rows, m.columns / 2], codes),
            (".weight_scale", "U8", vec![m.rows, m.columns / 32], scales),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

/// With a factor for the tensor that divides (compressed-tensors) or multiplies (ModelOpt).
fn nvfp4_directory(plain: &Plain, divides: bool) -> Written {
    let weights = json!({"num_bits": 4, "group_size": 16, "symmetric": true, "type": "float", "strategy": "tensor_group"});
    let (settings, codes_name, factor_name) = match divides {
        true => {
            (compressed_settings("nvfp4-pack-quantized", weights), ".weight_packed", ".weight_global_scale")
        }
        false => (json!({"quant_method": "modelopt", "quant_algo": "NVFP4"}), ".weight", ".weight_scale_2"),
    };
    plain.directory(("quantization_config", settings), |m| {
        let factor = m.largest() / (6.0 * MOST);
        let stored = if divides { 1.0 / factor } else { factor };
        let (codes, scales) = nvfp4(m, if divides { 1.0 / stored } else { stored });
        let parts = vec![
            (codes_name, "U8", vec![m.rows, m.columns / 2], codes),
            (".weight_scale", "F8_E4M3", vec![m.rows, m.columns / 16], scales),
            (factor_name, "F32", vec![1], f32s(&[stored])),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

pub(super) fn cases() -> Vec<Case> {
    let whole = |m: &Matrix| [m.rows, m.columns];
    let rows = |m: &Matrix| [1, m.columns];
    let compressed = |strategy: &str| {
        let weights = json!({"num_bits": 8, "symmetric": true, "type": "float", "strategy": strategy});
        compressed_settings("float-quantized", weights)
    };
    let fp8 = || json!({"quant_method": "fp8"});
    let mut cases: Vec<Case> = ["mxfp4", "nvfp4", "mxfp8"]
        .map(|mode| Case::new(format!("mlx-{mode}"), move |p| mlx(p, mode)))
        .into();
    cases.extend([
        Case::new("ct-fp8-tensor", move |p| {
            fp8_directory(p, compressed("tensor"), ".weight_scale", whole, |_| vec![1])
        }),
        Case::new("ct-fp8-rows", move |p| {
            fp8_directory(p, compressed("channel"), ".weight_scale", rows, |m| vec![m.rows, 1])
        }),
        Case::new("ct-fp8-blocks", move |p| {
            fp8_directory(p, compressed("block"), ".weight_scale", |_| [128; 2], blocks_of(128))
        }),
        Case::new("ct-mxfp4", compressed_mxfp4),
        Case::new("ct-nvfp4", |p| nvfp4_directory(p, true)),
        Case::new("fp8-blocks", |p| {
            let settings = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
            fp8_directory(p, settings, ".weight_scale_inv", |_| [128; 2], blocks_of(128))
        }),
        Case::new("fp8-tensor", move |p| fp8_directory(p, fp8(), ".weight_scale", whole, |_| vec![])),
        Case::new("fp8-rows", move |p| fp8_directory(p, fp8(), ".weight_scale", rows, |m| vec![m.rows])),
        Case::new("fp8-e5m2", e5m2),
        Case::new("modelopt-nvfp4", |p| nvfp4_directory(p, false)),
        Case::new("modelopt-fp8", move |p| {
            let settings = json!({"quant_method": "modelopt", "quant_algo": "FP8"});
            fp8_directory(p, settings, ".weight_scale", whole, |_| vec![])
        }),
    ]);
    cases
}

/// How many blocks of rows and columns there are.
fn blocks_of(size: usize) -> impl Fn(&Matrix) -> Vec<usize> {
    move |m| vec![m.rows.div_ceil(size), m.columns.div_ceil(size)]
}
