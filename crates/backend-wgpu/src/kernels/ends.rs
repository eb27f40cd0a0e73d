//! What products end with: sums over lanes, where results go, what follows each, and rounding for the products behind.

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

/// Sums over the lanes of a subgroup: sum `e` of `sums` ends as `{to}0` of lane `e`, or as `{to}1` and so on of the lanes from the start if
/// there are more of them than the `lanes` that a subgroup has at least. Two lanes exchange halves of what they hold, so all
/// sums together take hardly more steps than one. Whatever their number, each is added in the same order.
pub fn collect(to: &str, mut sums: Vec<String>, lanes: usize) -> String {
    let mut text = String::new();
    for level in 0..lanes.ilog2() {
        let by = 1 << level;
        let other = |x: &str| format!("subgroupShuffleXor({x}, {by}u)");
        text += &format!("let {to}odd{level} = (lane & {by}u) != 0u;\n");
        let halve = |(i, pair): (usize, &[String])| {
            let name = format!("{to}{level}_{i}");
            let [keep, give] = match pair {
                [a, b] => [[a, b], [b, a]].map(|[a, b]| format!("select({a}, {b}, {to}odd{level})")),
                _ => [pair[0].clone(), pair[0].clone()],
            };
            text += &format!("let {name} = {keep} + {};\n", other(&give));
            name
        };
        sums = sums.chunks(2).enumerate().map(halve).collect();
    }
    for (k, sum) in sums.iter().enumerate() {
        text += &format!(
            "var {to}{k} = {sum};
for (var by = {lanes}u; by < lanes; by *= 2u) {{ {to}{k} += subgroupShuffleXor({to}{k}, by); }}\n"
        );
    }
    text
}

/// Declares what rounding needs of `tile` rows of a workgroup, with `per_group` results each.
pub fn declare(s: &mut Source, round: Round, tile: usize, per_group: usize) {
    s.write("codes_of", "vec4<u32>");
    s.write("scales_of", "vec2<f32>");
    s.item(quantize::LARGEST);
    s.shared("made", "vec4<f32>", tile * per_group / 4);
    if round == Round::ForNorm {
        s.read("norm_of", "f32");
        s.write("squares_of", "f32");
        s.shared("normed", "vec4<f32>", tile * per_group / 4);
    }
}

/// Statements that keep `v` to be rounded as result `at` of the workgroup; `norm` is its weight of the norm.
pub fn keep(round: Round, at: &str, norm: &str) -> String {
    let mut text = format!("{{ let kept = {at};\nmade[kept / 4u][kept % 4u] = v;\n");
    if round == Round::ForNorm {
        text += &format!("normed[kept / 4u][kept % 4u] = v * {norm};\n");
    }
    text + "}\n"
}

/// Rounds the results of a workgroup that were kept.
pub fn rounded(round: Round, tile: usize, per_group: usize, by_tile: bool) -> String {
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
let own = e * 4u;
let other = (e ^ 1u) * 4u;\n",
        first = if by_tile { "p.first / 16u + " } else { "" },
        count = halves * tile,
    );
    let from = if round == Round::ForNorm { "normed" } else { "made" };
    for j in 0..4 {
        text += &format!("let v{j} = {from}[own + {j}u];\nlet o{j} = {from}[other + {j}u];\n");
    }
    if round == Round::ForNorm {
        text += "var squares = 0.0;\n";
        (0..4).for_each(|j| text += &format!("let m{j} = made[own + {j}u];\n"));
        for (j, c) in (0..4).flat_map(|j| ["x", "y", "z", "w"].map(|c| (j, c))) {
            text += &format!("squares = fma(m{j}.{c}, m{j}.{c}, squares);\n");
        }
        text += "squares_of[t * width + half] = squares;\n";
    }
    text += quantize::CODES;
    text + "codes_of[t * width + half] = codes;\nscales_of[t * width + half] = scaled;\n}\n"
}

/// [`outputs`] of one product, and the function `early(t, at)`, which reads operands before they are needed, and with `norm`
/// leaves the weight of the norm behind in `norm_early`.
pub fn outputs_early(s: &mut Source, links: &[Link], norm: bool) {
    s.write("y0", "f32");
    s.words("u32", &["w0"]);
    let chain = Chain::declare_early(s, links, "c0_");
    let norm = match norm {
        true => {
            s.item("var<private> norm_early: f32;");
            "norm_early = norm_of[n];\n"
        }
        false => "",
    };
    s.item(&format!(
        "fn early(t: u32, n: u32) {{ let e = t * p.w0 + n;\n{}{norm}}}
fn finish(t: u32, n: u32, value: f32) -> f32 {{ var v = value;
if n >= p.w0 {{ return 0.0; }}
let e = t * p.w0 + n; {}y0[e] = v; return v; }}",
        chain.early(),
        chain.apply()
    ));
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
