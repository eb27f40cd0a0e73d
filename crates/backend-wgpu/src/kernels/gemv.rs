//! Matrix times a few rows: each subgroup makes some results, its lanes share the sum.
//!
//! A lane takes 16 numbers of a row at a time. Whatever the number of rows, a result's sum has the same order.

use super::{
    chain::{Chain, Link},
    weights::Weights,
};
use crate::{
    form::Form,
    shader::{Shader, Source},
};
use nibble_graph::Activation;

/// What the matrix is multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Floats, rows a multiple of 16 long.
    Floats,
    /// Floats of any length.
    Ragged,
    /// 8-bit codes with scale and sum for every 16 ([`super::quantize`]).
    Codes,
}

/// Which rows meet which matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// All of them the only one.
    All,
    /// Each row those of its experts, with an input for the row or for each of them.
    Experts {
        /// Experts of a row.
        used: usize,
        /// Whether each has its own input.
        own: bool,
    },
}

/// What a kernel is made for.
#[derive(Clone, Debug)]
pub struct Gemv<'a> {
    /// How the matrix lies.
    pub form: &'a Form,
    /// What it meets.
    pub input: Input,
    /// Rows of the input in one workgroup.
    pub tile: usize,
    /// Results that a subgroup makes at once.
    pub per_sub: usize,
    /// Invocations.
    pub threads: u32,
    /// Results that a workgroup makes.
    pub per_group: usize,
    /// Whether a second matrix of the same form and shape is multiplied too; the result is `f(first) * second`.
    pub gate: Option<Activation>,
    /// Where results go: the products that the matrix stacks, with what follows each.
    pub products: &'a [Vec<Link>],
    /// Experts or not.
    pub choice: Choice,
}

/// Bindings: the input (codes: and their scales), the planes, those of the second matrix, the route, then for each
/// product its output and its operands. Words: `n` (results here), `first` (number of the first), `halves`, `k`,
/// factors, `wN` (width of each product). Grid: `n / per_group`, rows / tile.
pub fn gemv(g: &Gemv<'_>) -> Shader {
    let tile = if g.choice == Choice::All { g.tile } else { 1 };
    let mut s = Source::new(format!("gemv {} x{tile}", g.form.describe()), g.threads);
    s.subgroups();
    match g.input {
        Input::Floats => s.read("x", "vec4<f32>"),
        Input::Ragged => s.read("x", "f32"),
        Input::Codes => {
            s.read("x", "vec4<u32>");
            s.read("xs", "vec2<f32>");
        }
    }
    s.words("u32", &["n", "first", "halves", "k"]);
    let mut matrices = vec![Weights::declare(&mut s, g.form, "a")];
    if g.gate.is_some() {
        matrices.push(Weights::declare(&mut s, g.form, "b"));
    }
    let mut experts = String::new();
    let (mut row, mut base) = ("", "");
    if let Choice::Experts { used, own } = g.choice {
        s.read("route", "f32");
        s.words("u32", &["each"]);
        experts = format!(
            "let token = group.y / {used}u;
let expert = u32(route[(2u * token + 1u) * {used}u + group.y % {used}u]);
let skip = expert * p.each;
// Experts of another part of the stack.
if skip < p.first || skip >= p.first + p.n {{ return; }}
let start = skip - p.first;\n"
        );
        row = if own { "group.y" } else { "token" };
        base = "start + ";
    }
    outputs(&mut s, g.products, "");

    let many = if g.choice == Choice::All { "p.n" } else { "p.each" };
    let (per_sub, per_group) = (g.per_sub, g.per_group);
    let mut body = format!(
        "{experts}let last = {many} - 1u;
let stop = min((group.x + 1u) * {per_group}u, {many});
for (var at = group.x * {per_group}u + sub * {per_sub}u; at < stop; at += subs * {per_sub}u) {{\n"
    );
    for t in 0..tile {
        let index = if row.is_empty() {
            format!("min(group.y * {tile}u + {t}u, p.rows - 1u)")
        } else {
            row.to_string()
        };
        body += &format!("let t{t} = {index};\n");
    }
    let matrix = |m: usize| ["a", "b"][m];
    for m in 0..matrices.len() {
        for r in 0..per_sub {
            body += &format!("let {0}r{r} = ({base}min(at + {r}u, last)) * p.halves;\n", matrix(m));
            for t in 0..tile {
                body += &format!("var {0}{r}_{t} = 0.0;\n", matrix(m));
            }
        }
    }
    body += "for (var h = lane; h < p.halves; h += lanes) {\n";
    for (m, weights) in matrices.iter().enumerate() {
        for r in 0..per_sub {
            let name = matrix(m);
            body += &weights.load(&format!("{name}v{r}_"), &format!("{name}r{r} + h"));
        }
    }
    for t in 0..tile {
        body += &load_input(g.input, t, matrices[0].needs_sums());
        for (m, weights) in matrices.iter().enumerate() {
            for r in 0..per_sub {
                let v = format!("{}v{r}_", matrix(m));
                let share = match g.input {
                    Input::Codes => {
                        let signed = (0..4).map(|j| format!("dot4I8Packed({v}{j}, x{t}[{j}])"));
                        let dot = format!("(x{t}s.x * f32({}))", signed.collect::<Vec<_>>().join(" + "));
                        weights.share(&v, &dot, &format!("x{t}s.y"))
                    }
                    _ => {
                        let dots = (0..4).map(|j| format!("dot({}, x{t}_{j})", weights.numbers(&v, j)));
                        let dot = format!("({})", dots.collect::<Vec<_>>().join(" + "));
                        weights.share(&v, &dot, &format!("x{t}s"))
                    }
                };
                body += &format!("{}{r}_{t} += {share};\n", matrix(m));
            }
        }
    }
    body += "}\n";
    for r in 0..per_sub {
        for t in 0..tile {
            let sum = |m: &str| format!("subgroupAdd({m}{r}_{t}) * p.{m}_factor");
            body += &format!("let s{r}_{t} = {};\n", sum("a"));
            if let Some(f) = g.gate {
                let f = super::chain::activation(&mut s, f);
                body += &format!("let g{r}_{t} = {f}(s{r}_{t}) * ({});\n", sum("b"));
            }
        }
    }
    // Each result is ended by a lane of its own.
    let value = if g.gate.is_some() { "g" } else { "s" };
    let count = per_sub * tile;
    body += &format!("for (var e = lane; e < {count}u; e += lanes) {{\nvar v = {value}0_0;\n");
    for r in 0..per_sub {
        for t in 0..tile {
            let e = r * tile + t;
            if e > 0 {
                body += &format!("v = select(v, {value}{r}_{t}, e == {e}u);\n");
            }
        }
    }
    let (t, offset) = if row.is_empty() {
        (format!("group.y * {tile}u + e % {tile}u"), "p.first + ")
    } else {
        ("group.y".to_string(), "")
    };
    let bound = if row.is_empty() { " && t < p.rows" } else { "" };
    body += &format!(
        "let t = {t};
let n = at + e / {tile}u;
if n < stop{bound} {{ finish(t, {offset}n, v); }}
}}\n}}"
    );
    s.build(&body)
}

/// Declares for each product its output, its operands and the word `wN` (its width), and the function
/// `finish(t, at, value)` that ends result `at` of all products at row `t`. `before` are statements on its `v`.
pub fn outputs(s: &mut Source, products: &[Vec<Link>], before: &str) {
    let mut ends = String::new();
    for (i, links) in products.iter().enumerate() {
        s.write(&format!("y{i}"), "f32");
        s.words("u32", &[&format!("w{i}")]);
        let chain = Chain::declare(s, links, &format!("c{i}_"));
        let width = format!("p.w{i}");
        ends += &format!(
            "if n < {width} {{ let e = t * {width} + n; {}y{i}[e] = v; return; }}\nn -= {width};\n",
            chain.apply()
        );
    }
    s.item(&format!(
        "fn finish(t: u32, at: u32, value: f32) {{ var n = at; var v = value;\n{before}{ends}}}"
    ));
}

/// Half `h` of input row `t{t}`.
fn load_input(input: Input, t: usize, sums: bool) -> String {
    let mut text = String::new();
    match input {
        Input::Codes => {
            text += &format!("let x{t} = x[t{t} * p.halves + h];\nlet x{t}s = xs[t{t} * p.halves + h];\n");
            return text;
        }
        Input::Floats => {
            for j in 0..4 {
                text += &format!("let x{t}_{j} = x[t{t} * (p.k >> 2u) + h * 4u + {j}u];\n");
            }
        }
        Input::Ragged => {
            for j in 0..4 {
                let one = |c: usize| {
                    let k = format!("h * 16u + {}u", j * 4 + c);
                    format!("select(0.0, x[t{t} * p.k + min({k}, p.k - 1u)], {k} < p.k)")
                };
                text +=
                    &format!("let x{t}_{j} = vec4<f32>({}, {}, {}, {});\n", one(0), one(1), one(2), one(3));
            }
        }
    }
    if sums {
        text += &format!("let x{t}s = dot(x{t}_0 + x{t}_1 + x{t}_2 + x{t}_3, vec4<f32>(1.0));\n");
    }
    text
}
