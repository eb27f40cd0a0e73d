//! Integers in groups: MLX, GPTQ, AWQ, compressed-tensors.

use super::*;

/// Codes with a scale and a zero for each group of columns.
struct Rounded {
    codes: Vec<u8>,
    /// `[rows, groups]`, as are the zeros.
    scales: Vec<f32>,
    zeros: Vec<u8>,
    groups: usize,
}

/// Rounds to `bits` bits; `group_of` says which group a column belongs to.
fn round(m: &Matrix, bits: usize, group_of: &[usize], symmetric: bool) -> Rounded {
    let (groups, most) = (group_of.iter().max().map_or(0, |g| g + 1), ((1u32 << bits) - 1) as f32);
    let mut out =
        Rounded { codes: Vec::with_capacity(m.numbers.len()), scales: vec![], zeros: vec![], groups };
    for row in 0..m.rows {
        let row = m.row(row);
        let mut ends = vec![(0f32, 0f32); groups];
        for (&x, &g) in row.iter().zip(group_of) {
            ends[g] = (ends[g].0.min(x), ends[g].1.max(x));
        }
        let first = out.scales.len();
        for (low, high) in ends {
            let (scale, zero) = match symmetric {
                true => {
                    let middle = (1u32 << (bits - 1)) as f32;
                    (high.max(-low) / (middle - 1.0).max(1.0), middle)
                }
                false => ((high - low) / most, 0.0),
            };
            let scale = if half(scale) > 0.0 { half(scale) } else { 1.0 };
            // Files of GPTQ's first version store the zero minus one.
            let zero = if symmetric { zero } else { (-low / scale).round().clamp(1.0, most) };
            out.scales.push(scale);
            out.zeros.push(zero as u8);
        }
        let code = |(&x, &g): (&f32, &usize)| {
            let (scale, zero) = (out.scales[first + g], f32::from(out.zeros[first + g]));
            ((x / scale).round() + zero).clamp(0.0, most) as u8
        };
        out.codes.extend(row.iter().zip(group_of).map(code));
    }
    out
}

fn in_order(columns: usize, group: usize) -> Vec<usize> {
    (0..columns).map(|i| i / group).collect()
}

fn out_of_order(columns: usize, group: usize) -> Vec<usize> {
    shuffled(columns).into_iter().map(|i| i / group).collect()
}

/// The codes of each row as a stream.
fn rows(codes: &[u8], columns: usize, bits: usize) -> Vec<Vec<u8>> {
    codes.chunks_exact(columns).map(|row| stream(row.iter().copied(), bits)).collect()
}

fn mlx(plain: &Plain, bits: usize, group: usize, own: &[(&str, usize, usize)]) -> Written {
    let mut settings = json!({"group_size": group, "bits": bits});
    for (module, bits, group) in own {
        settings[*module] = json!({"group_size": group, "bits": bits});
    }
    plain.directory(("quantization", settings), |m| {
        let own = own.iter().find(|(module, ..)| *module == m.name);
        let (bits, group) = own.map_or((bits, group), |&(_, bits, group)| (bits, group));
        let most = ((1u32 << bits) - 1) as f32;
        let (mut codes, mut scales, mut biases) = (vec![], vec![], vec![]);
        for numbers in m.numbers.chunks_exact(group) {
            let low = numbers.iter().copied().fold(f32::INFINITY, f32::min);
            let high = numbers.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // The end of larger magnitude is exact.
            let (bias, scale) = match low.abs() > high.abs() {
                true => (low, (high - low).max(1e-7) / most),
                false => (high, (low - high).min(-1e-7) / most),
            };
            let [bias, scale] = [bias, scale].map(|x| bf16::from_f32(x).to_f32());
            codes.extend(numbers.iter().map(|x| ((x - bias) / scale).round().clamp(0.0, most) as u8));
            scales.push(scale);
            biases.push(bias);
        }
        let groups = vec![m.rows, m.columns / group];
        Some(vec![
            (".weight", "U32", vec![m.rows, m.columns * bits / 32], rows(&codes, m.columns, bits).concat()),
            (".scales", "BF16", groups.clone(), bf16s(&scales)),
            (".biases", "BF16", groups, bf16s(&biases)),
        ])
    })
}

/// `group` 0 stands for whole rows.
fn gptq(plain: &Plain, bits: usize, group: usize, second_version: bool, ordered: bool) -> Written {
    let settings = json!({
        "quant_method": "gptq", "bits": bits, "group_size": if group == 0 { -1 } else { group as i64 },
        "desc_act": ordered, "sym": false, "checkpoint_format": if second_version { "gptq_v2" } else { "gptq" },
    });
    plain.directory(("quantization_config", settings), |m| {
        let group = if group == 0 { m.columns } else { group };
        let group_of = if ordered { out_of_order(m.columns, group) } else { in_order(m.columns, group) };
        let r = round(m, bits, &group_of, false);
        let stored: Vec<u8> =
            r.zeros.iter().map(|zero| if second_version { *zero } else { zero - 1 }).collect();
        let parts = vec![
            (
                ".qweight",
                "I32",
                vec![m.columns * bits / 32, m.rows],
                side_by_side(&rows(&r.codes, m.columns, bits)),
            ),
            (
                ".qzeros",
                "I32",
                vec![r.groups, m.rows * bits / 32],
                rows(&turned(&stored, r.groups), m.rows, bits).concat(),
            ),
            (".scales", "F16", vec![r.groups, m.rows], f16s(&turned(&r.scales, r.groups))),
            (".g_idx", "I32", vec![m.columns], i32s(group_of)),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

fn awq(plain: &Plain, group: usize) -> Written {
    let settings =
        json!({"quant_method": "awq", "bits": 4, "group_size": group, "zero_point": true, "version": "gemm"});
    plain.directory(("quantization_config", settings), |m| {
        // Which of eight columns a nibble of a word holds.
        const COLUMN: [usize; 8] = [0, 2, 4, 6, 1, 3, 5, 7];
        let words = |codes: Vec<u8>| {
            let picked: Vec<u8> = codes.chunks_exact(8).flat_map(|eight| COLUMN.map(|c| eight[c])).collect();
            stream(picked, 4)
        };
        let r = round(m, 4, &in_order(m.columns, group), false);
        let parts = vec![
            (".qweight", "I32", vec![m.columns, m.rows / 8], words(turned(&r.codes, m.columns))),
            (".qzeros", "I32", vec![r.groups, m.rows / 8], words(turned(&r.zeros, r.groups))),
            (".scales", "F16", vec![r.groups, m.rows], f16s(&turned(&r.scales, r.groups))),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

#[derive(Clone, Copy)]
struct Compressed {
    bits: usize,
    group: usize,
    symmetric: bool,
    ordered: bool,
    /// Whole codes in each word, as files had them before August 2026.
    old: bool,
}

fn compressed(plain: &Plain, c: Compressed) -> Written {
    let Compressed { bits, group, symmetric, ordered, old } = c;
    let weights = json!({
        "num_bits": bits, "group_size": group, "symmetric": symmetric, "type": "int", "strategy": "group",
        "actorder": if ordered { json!("group") } else { Json::Null },
    });
    let settings = compressed_settings("pack-quantized", weights);
    plain.directory(("quantization_config", settings), |m| {
        let group_of = if ordered { out_of_order(m.columns, group) } else { in_order(m.columns, group) };
        let r = round(m, bits, &group_of, symmetric);
        let words = match old {
            false => rows(&r.codes, m.columns, bits),
            true => {
                let word = |codes: &[u8]| stream(codes.iter().copied(), bits);
                let row = |row: &[u8]| row.chunks(32 / bits).flat_map(word).collect();
                r.codes.chunks_exact(m.columns).map(row).collect()
            }
        };
        let shape = [m.rows, m.columns].iter().flat_map(|&n| (n as i64).to_le_bytes()).collect();
        let mut parts: Parts = vec![
            (".weight_packed", "I32", vec![m.rows, words[0].len() / 4], words.concat()),
            (".weight_scale", "F16", vec![m.rows, r.groups], f16s(&r.scales)),
            (".weight_shape", "I64", vec![2], shape),
        ];
        if !symmetric {
            let zeros = rows(&turned(&r.zeros, r.groups), m.rows, bits);
            parts.push((
                ".weight_zero_point",
                "I32",
                vec![zeros[0].len() / 4, r.groups],
                side_by_side(&zeros),
            ));
        }
        if ordered {
            parts.push((".weight_g_idx", "I32", vec![m.columns], i32s(group_of)));
        }
        (!m.is_embedding()).then_some(parts)
    })
}

/// Signed bytes, one scale a row.
fn bytes(plain: &Plain) -> Written {
    let weights = json!({"num_bits": 8, "symmetric": true, "type": "int", "strategy": "channel"});
    plain.directory(("quantization_config", compressed_settings("int-quantized", weights)), |m| {
        let r = round(m, 8, &vec![0; m.columns], true);
        let signed = r.codes.iter().map(|code| code.wrapping_sub(128)).collect();
        let parts = vec![
            (".weight", "I8", vec![m.rows, m.columns], signed),
            (".weight_scale", "F16", vec![m.rows, 1], f16s(&r.scales)),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

pub(super) fn compressed_settings(format: &str, weights: Json) -> Json {
    let groups = json!({"group_0": {"targets": ["Linear"], "weights": weights}});
    json!({"quant_method": "compressed-tensors", "format": format, "ignore": ["lm_head"], "config_groups": groups})
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![];
    for bits in [1, 2, 3, 4, 5, 6, 8] {
        for group in [32, 64, 128] {
            cases.push(Case::new(format!("mlx-{bits}-{group}"), move |p| mlx(p, bits, group, &[])));
        }
    }
    let own = [("model.layers.1.mlp.down_proj", 6, 64), ("model.layers.0.self_attn.v_proj", 8, 32)];
    cases.push(Case::new("mlx-mixed", move |p| mlx(p, 3, 64, &own)));
    for bits in [2, 3, 4, 8] {
        cases.push(Case::new(format!("gptq-{bits}"), move |p| gptq(p, bits, 128, false, false)));
        cases.push(Case::new(format!("gptq-{bits}-order"), move |p| gptq(p, bits, 32, bits == 3, true)));
    }
    cases.push(Case::new("gptq-4-rows", |p| gptq(p, 4, 0, true, false)));
    for group in [32, 64, 128] {
        cases.push(Case::new(format!("awq-{group}"), move |p| awq(p, group)));
    }
    let plain = Compressed { bits: 4, group: 128, symmetric: true, ordered: false, old: false };
    for bits in 2..=8 {
        let c = Compressed { bits, ..plain };
        cases.push(Case::new(format!("ct-int{bits}"), move |p| compressed(p, c)));
        let c = Compressed { bits, group: 64, symmetric: false, ordered: bits == 4, ..plain };
        cases.push(Case::new(format!("ct-int{bits}-zeros"), move |p| compressed(p, c)));
    }
    let old = Compressed { bits: 3, old: true, ..plain };
    cases.push(Case::new("ct-int3-old", move |p| compressed(p, old)));
    cases.push(Case::new("ct-int8-rows", bytes));
    cases
}
