//! Rounds inputs of products to eight bits, with one scale for every 32 numbers, as the CPU does.

use crate::{
    selfcheck,
    shader::{Shader, Source},
};

/// The bits of the largest magnitude in a vector. As integers, magnitudes order like numbers, with infinity and NaN on top: a scale
/// must show them.
pub const LARGEST: &str = "fn largest(v: vec4<f32>) -> u32 {
let a = bitcast<vec4<u32>>(v) & vec4<u32>(0x7fffffffu);
return max(max(a.x, a.y), max(a.z, a.w));
}";

/// Codes of 16 numbers in `v0` to `v3`, whose other half of the same 32 numbers is in `o0` to `o3`: leaves them in
/// `codes`, and scale with scaled sum in `scaled`.
pub const CODES: &str =
    "let most = bitcast<f32>(max(max(max(largest(v0), largest(v1)), max(largest(v2), largest(v3))),
    max(max(largest(o0), largest(o1)), max(largest(o2), largest(o3)))));
let d = most / 127.0;
let inverse = select(0.0, 127.0 / most, most > 0.0);
let codes = vec4<u32>(pack4xI8(vec4<i32>(round(v0 * inverse))), pack4xI8(vec4<i32>(round(v1 * inverse))), \
     pack4xI8(vec4<i32>(round(v2 * inverse))), pack4xI8(vec4<i32>(round(v3 * inverse))));
let count = dot4I8Packed(codes.x, 0x01010101u) + dot4I8Packed(codes.y, 0x01010101u) + \
     dot4I8Packed(codes.z, 0x01010101u) + dot4I8Packed(codes.w, 0x01010101u);
let scaled = vec2<f32>(d, d * f32(count));\n";

/// Bindings: x, codes, scales. Words: `halves` of a row, `k`. Grid: blocks of 64 halves, rows (parts of rows count as
/// rows).
pub fn quantize() -> Shader {
    let mut s = Source::new("quantize", 64);
    s.read("x", "f32");
    s.write("y", "vec4<u32>");
    s.write("ys", "vec2<f32>");
    s.words("u32", &["halves", "k"]);
    s.item(
        "fn four(row: u32, k: u32) -> vec4<f32> { var v = vec4<f32>(0.0); let at = row * p.k + k;
if k + 3u < p.k { v = vec4<f32>(x[at], x[at + 1u], x[at + 2u], x[at + 3u]); }
else { for (var i = 0u; i < 4u && k + i < p.k; i += 1u) { v[i] = x[at + i]; } }
return v; }",
    );
    s.item(LARGEST);
    let mut body = String::from(
        "let h = group.x * 64u + local;
if h >= p.halves { return; }
let k = h * 16u;
// The other half of the same 32 numbers.
let other = (h ^ 1u) * 16u;\n",
    );
    for j in 0..4 {
        body += &format!(
            "let v{j} = four(group.y, k + {}u);\nlet o{j} = four(group.y, other + {}u);\n",
            4 * j,
            4 * j
        );
    }
    body += CODES;
    body += "y[group.y * p.halves + h] = codes;\nys[group.y * p.halves + h] = scaled;";
    s.build(&body).with(selfcheck::Quantize)
}
