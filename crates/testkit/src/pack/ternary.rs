//! Ternary matrices in directories.

use super::*;

/// Each number as -1, 0 or 1, and their factor.
pub(super) fn ternary(m: &Matrix) -> (Vec<i8>, f32) {
    let mean = m.numbers.iter().map(|x| x.abs()).sum::<f32>() / m.numbers.len() as f32;
    let mean = bf16::from_f32(mean).to_f32();
    (m.numbers.iter().map(|x| (x / mean).round().clamp(-1.0, 1.0) as i8).collect(), mean)
}

fn bitnet(plain: &Plain, class: &str) -> Written {
    let settings = json!({"quant_method": "bitnet", "linear_class": class, "quantization_mode": "offline"});
    plain.directory(("quantization_config", settings), |m| {
        let (numbers, mean) = ternary(m);
        let quarter = m.numbers.len() / 4;
        let code = |i: usize| (numbers[i] + 1) as u8;
        let packed = (0..quarter).map(|i| (0..4).fold(0, |byte, k| byte | code(i + k * quarter) << (2 * k)));
        // `bitlinear` divides by it.
        let scale = if class == "bitlinear" { 1.0 / mean } else { mean };
        let parts = vec![
            (".weight", "U8", vec![m.rows / 4, m.columns], packed.collect()),
            (".weight_scale", "BF16", vec![1], bf16s(&[scale])),
        ];
        (!m.is_embedding()).then_some(parts)
    })
}

pub(super) fn cases() -> Vec<Case> {
    ["bitlinear", "autobitlinear"]
        .map(|class| Case::new(format!("bitnet-{class}"), move |p| bitnet(p, class)))
        .into()
}
