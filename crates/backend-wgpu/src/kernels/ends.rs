//! What products end with: where their results go, what follows each, and rounding for the products behind.

use super::{
    chain::{Chain, Link},
    quantize,
};
use crate::shader::Source;

/// How results are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// As they are.
    Plain,
    /// Times the weight of a norm, with sums of squares beside them: for [`super::gemv::Gemv::norm`].
    ForNorm,
}

/// Declares what rounding needs; rounds the results of a workgroup, which are in `made`.
pub fn rounded(s: &mut Source, round: Round, tile: usize, per_group: usize, by_tile: bool) -> String {
    s.write("codes_of", "vec4<u32>");
    s.write("scales_of", "vec2<f32>");
    if round == Round::ForNorm {
        s.read("norm_of", "f32");
        s.write("squares_of", "f32");
    }
    s.item(quantize::LARGEST);
    s.shared("made", "f32", tile * per_group);
    let halves = per_group / 16;
    let (row, bound) = if by_tile {
        (format!("group.y * {tile}u + e / {halves}u"), "t < p.rows && ")
    } else {
        ("group.y".into(), "")
    };
    let mut text = format!(
        "workgroupBarrier();
let e = local;
let t = {row};
let width = p.w0 / 16u;
let half = {first}group.x * {halves}u + e % {halves}u;
if {bound}e < {count}u && half < width {{
let own = e * 16u;
let other = (e ^ 1u) * 16u;\n",
        first = if by_tile { "p.first / 16u + " } else { "" },
        count = halves * tile,
    );
    for j in 0..4 {
        for (name, from) in [("v", "own"), ("o", "other")] {
            let parts: Vec<_> = (0..4).map(|c| format!("made[{from} + {}u]", 4 * j + c)).collect();
            text += &format!("var {name}{j} = vec4<f32>({});\n", parts.join(", "));
        }
    }
    if round == Round::ForNorm {
        text += "var squares = 0.0;\n";
        for (j, c) in (0..4).flat_map(|j| ["x", "y", "z", "w"].map(|c| (j, c))) {
            text += &format!("squares = fma(v{j}.{c}, v{j}.{c}, squares);\n");
        }
        text += "squares_of[t * width + half] = squares;\n";
        for j in 0..4 {
            for (name, from) in [("v", "half"), ("o", "(half ^ 1u)")] {
                let at = |c: usize| format!("norm_of[{from} * 16u + {}u]", 4 * j + c);
                text += &format!("{name}{j} *= vec4<f32>({}, {}, {}, {});\n", at(0), at(1), at(2), at(3));
            }
        }
    }
    text += quantize::CODES;
    text + "codes_of[t * width + half] = codes;\nscales_of[t * width + half] = scaled;\n}\n"
}

/// Declares for each product its output, its operands and the word `wN` (its width), and the function
/// `finish(t, at, value)` that ends result `at` of all products at row `t` and returns it. `before` are statements on its `v`.
pub fn outputs(s: &mut Source, products: &[Vec<Link>], before: &str) {
    let mut ends = String::new();
    for (i, links) in products.iter().enumerate() {
        s.write(&format!("y{i}"), "f32");
        s.words("u32", &[&format!("w{i}")]);
        let chain = Chain::declare(s, links, &format!("c{i}_"));
        let width = format!("p.w{i}");
        ends += &format!(
            "if n < {width} {{ let e = t * {width} + n; {}y{i}[e] = v; return v; }}\nn -= {width};\n",
            chain.apply()
        );
    }
    s.item(&format!(
        "fn finish(t: u32, at: u32, value: f32) -> f32 {{ var n = at; var v = value;\n{before}{ends}return 0.0; }}"
    ));
}
