//! Norms over groups of a row: one workgroup a group.

use super::quantize;
use crate::{
    selfcheck,
    shader::{Shader, Source},
};

/// Invocations of a norm's workgroup.
const THREADS: u32 = 256;

/// The sum of `value` (an expression) over the workgroup, as statements that leave it in `total`.
pub fn sum_of(s: &mut Source, threads: u32, value: &str) -> String {
    s.shared("partial", "f32", threads as usize);
    let mut text = format!("partial[local] = {value};\n");
    let mut width = threads / 2;
    while width > 0 {
        text += &format!(
            "workgroupBarrier();\nif local < {width}u {{ partial[local] += partial[local + {width}u]; }}\n"
        );
        width /= 2;
    }
    text + "workgroupBarrier();\nlet total = partial[0];\n"
}

/// `y = x / sqrt(mean of squares + eps) * weight`. Bindings: x, weight, y. Words: `len` of a group, `eps`.
/// Grid: groups of a row, rows.
pub fn rms_norm() -> Shader {
    norm("rms_norm", true).with(selfcheck::RmsNorm)
}

/// [`rms_norm`] over whole rows whose results are rounded as [`super::quantize`] does. Bindings: x, weight, codes, scales,
/// then the result itself with `keep`. Words: `halves`, `k`, `eps`. Grid: 1, rows.
pub fn rms_norm_codes(keep: bool) -> Shader {
    let mut s = Source::new("rms_norm_codes", THREADS);
    s.read("x", "f32");
    s.read("weight", "f32");
    s.write("y", "vec4<u32>");
    s.write("ys", "vec2<f32>");
    if keep {
        s.write("kept", "f32");
    }
    s.words("u32", &["halves", "k"]);
    s.words("f32", &["eps"]);
    let sum = sum_of(&mut s, THREADS, "squares");
    s.item(
        "fn four(start: u32, k: u32, scale: f32) -> vec4<f32> { var v = vec4<f32>(0.0);
for (var i = 0u; i < 4u; i += 1u) { if k + i < p.k { v[i] = x[start + k + i] * scale * weight[k + i]; } }
return v; }",
    );
    s.item(quantize::LARGEST);
    let mut body = format!(
        "let start = group.y * p.k;
var squares = 0.0;
for (var i = local; i < p.k; i += {THREADS}u) {{ let v = x[start + i]; squares += v * v; }}
{sum}let scale = inverseSqrt(total / f32(p.k) + p.eps);
for (var h = local; h < p.halves; h += {THREADS}u) {{
let k = h * 16u;
let other = (h ^ 1u) * 16u;\n"
    );
    for j in 0..4 {
        let at = 4 * j;
        body += &format!(
            "let v{j} = four(start, k + {at}u, scale);\nlet o{j} = four(start, other + {at}u, scale);\n"
        );
    }
    body += quantize::CODES;
    body += "y[group.y * p.halves + h] = codes;\nys[group.y * p.halves + h] = scaled;\n";
    if keep {
        for i in 0..16 {
            body += &format!("if k + {i}u < p.k {{ kept[start + k + {i}u] = v{}[{}]; }}\n", i / 4, i % 4);
        }
    }
    s.build(&(body + "}")).with(selfcheck::RmsNormCodes { keep })
}

/// `y = x / sqrt(sum of squares + eps)`. Bindings: x, y. Words: `len` of a group, `eps`. Grid: groups of a row, rows.
pub fn l2_norm() -> Shader {
    norm("l2_norm", false).with(selfcheck::L2Norm)
}

fn norm(label: &str, mean: bool) -> Shader {
    let mut s = Source::new(label, THREADS);
    s.read("x", "f32");
    if mean {
        s.read("weight", "f32");
    }
    s.write("y", "f32");
    s.words("u32", &["len", "groups"]);
    s.words("f32", &["eps"]);
    let sum = sum_of(&mut s, THREADS, "squares");
    let (scale, weight) = if mean {
        ("inverseSqrt(total / f32(p.len) + p.eps)", " * weight[i]")
    } else {
        ("inverseSqrt(total + p.eps)", "")
    };
    s.build(&format!(
        "let start = (group.y * p.groups + group.x) * p.len;
var squares = 0.0;
for (var i = local; i < p.len; i += {THREADS}u) {{ let v = x[start + i]; squares += v * v; }}
{sum}let scale = {scale};
for (var i = local; i < p.len; i += {THREADS}u) {{ y[start + i] = x[start + i] * scale{weight}; }}"
    ))
}
