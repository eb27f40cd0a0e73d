//! Matrix times a few rows: each subgroup makes some results, its lanes share the sum.
//!
//! A lane takes 16 numbers of a row at a time. Whatever the number of rows, a result's sum has the same order.
//!
//! A norm in front costs nothing: its weight is part of the codes, and as it scales a row as a whole, results are scaled by
//! it in the end. The sum of squares that it needs comes with the codes. A norm or a rounding behind costs little: a
//! workgroup makes whole groups of 32 results and rounds them itself.

use super::{
    chain::Link,
    ends::{self, Round, collect, outputs, outputs_early, rounded},
    route::choose,
    weights::Weights,
};
use crate::{
    form::Form,
    shader::{Shader, Source},
};
use nibble_graph::{Activation, Route};

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
    /// Each row those of its experts, all of which have their own input; results are summed by the weights of the route.
    Sum {
        /// Experts of a row.
        used: usize,
        /// Whether each has a bias.
        bias: bool,
    },
}

/// The most experts among which a product chooses itself.
pub const MOST_EXPERTS: usize = 512;

/// What a kernel is made for.
#[derive(Clone, Debug)]
pub struct Gemv<'a> {
    /// How the matrix lies.
    pub form: &'a Form,
    /// What it meets.
    pub input: Input,
    /// Rows of the input in one workgroup.
    pub tile: usize,
    /// Results that a subgroup makes at once: a multiple of those that the form reads at once.
    pub per_sub: usize,
    /// Invocations.
    pub threads: u32,
    /// Invocations of a subgroup at least.
    pub lanes: usize,
    /// Results that a workgroup makes.
    pub per_group: usize,
    /// Whether a second matrix of the same form and shape is multiplied too; the result is `f(first) * second`.
    pub gate: Option<Activation>,
    /// Where results go: the products that the matrix stacks, with what follows each.
    pub products: &'a [Vec<Link>],
    /// Experts or not.
    pub choice: Choice,
    /// Pieces of a row that a lane asks for before it waits for the first.
    pub ahead: usize,
    /// Whether rows divide into `ahead` pieces for every lane.
    pub even: bool,
    /// The epsilon of a norm that its input still needs: floats are without its weight too.
    pub norm: Option<f32>,
    /// The choice of experts, if it is made here; otherwise a call before this one has made it.
    pub choose: Option<(Route, bool)>,
    /// Whether results are rounded, in groups of 32 within a workgroup.
    pub round: Option<Round>,
}

/// Bindings: the input (codes: and their scales, for a norm: and its sums of squares, for a norm of floats: and its weight), the
/// planes, those of the second matrix, the route (if experts are chosen here: logits, their bias if they have one, then
/// the route), biases of experts that are summed, then for each product its output and its operands, then codes, scales
/// and for a norm its weight and sums of squares of the rounded result. Words: `n` (results here), `first` (number of the
/// first), `halves`, `k`, factors, for experts `each` (rows of one's matrix), to choose `experts`, `wN` (width of each
/// product). Grid: `n / per_group`, rows / tile.
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
    if g.norm.is_some() {
        s.read("squares", "f32");
        if g.input == Input::Floats {
            s.read("norm_by", "vec4<f32>");
        }
    }
    s.words("u32", &["n", "first", "halves", "k"]);
    let mut matrices = vec![Weights::declare(&mut s, g.form, "a")];
    if g.gate.is_some() {
        matrices.push(Weights::declare(&mut s, g.form, "b"));
    }
    let experts = experts(&mut s, g);
    let (row, base) = match g.choice {
        Choice::All => ("", ""),
        Choice::Experts { own: true, .. } => ("group.y", "start + "),
        Choice::Experts { own: false, .. } => ("token", "start + "),
        Choice::Sum { .. } => ("token", ""),
    };
    let count = g.per_sub * tile;
    // Each result is ended by a lane of its own, which can read what that needs before the sum. With several rows it only takes
    // registers from sums.
    let is_early = tile == 1 && g.products.len() == 1 && count <= g.lanes;
    match is_early {
        true => outputs_early(&mut s, &g.products[0], g.round == Some(Round::ForNorm)),
        false => outputs(&mut s, g.products, ""),
    }
    if let Some(round) = g.round {
        ends::declare(&mut s, round, tile, g.per_group);
    }

    let many = if g.choice == Choice::All { "p.n" } else { "p.each" };
    let (per_sub, per_group) = (g.per_sub, g.per_group);
    let mut body = format!(
        "{experts}let last = {many} - 1u;
let stop = min((group.x + 1u) * {per_group}u, {many});
for (var at = group.x * {per_group}u + sub * {per_sub}u; at < stop; at += subs * {per_sub}u) {{\n"
    );
    let (t, offset, bound) = match row.is_empty() {
        true => (format!("group.y * {tile}u + e % {tile}u"), "p.first + ", " && t < p.rows"),
        false => ("group.y".to_string(), "", ""),
    };
    let place =
        format!("let t = {t};\nlet place = at + e / {tile}u;\nlet n = {};\n", matrices[0].result("place"));
    if is_early {
        body += &format!(
            "{{ let e = lane;\n{place}if e < {count}u && place < stop{bound} {{ early(t, {offset}n); }} }}\n"
        );
    }
    for t in 0..tile {
        let index = if row.is_empty() {
            format!("min(group.y * {tile}u + {t}u, p.rows - 1u)")
        } else {
            row.to_string()
        };
        body += &format!("let t{t} = {index};\n");
        if g.norm.is_some() {
            body += &format!("var q{t} = 0.0;\n");
        }
    }
    let matrix = |m: usize| ["a", "b"][m];
    let once = matrices[0].at_once();
    for m in 0..matrices.len() {
        for r in 0..per_sub {
            if r.is_multiple_of(once) {
                let name = format!("{}r{r}", matrix(m));
                body += &matrices[m].row(&name, &format!("{base}min(at + {r}u, last)"));
            }
            for t in 0..tile {
                body += &format!("var {0}{r}_{t} = 0.0;\n", matrix(m));
            }
        }
    }
    body += &main_loop(g, tile, &matrices);
    let lanes = g.lanes;
    for m in 0..matrices.len() {
        let sums = (0..count).map(|e| format!("{}{}_{}", matrix(m), e / tile, e % tile)).collect();
        body += &collect(&format!("{}s", matrix(m)), sums, lanes);
    }
    if let Some(eps) = g.norm {
        body += &collect("qs", (0..tile).map(|t| format!("q{t}")).collect(), lanes);
        body += &format!("let norm = inverseSqrt(qs0 / f32(p.k) + f32({eps:?}));\n");
    }
    let norm = if g.norm.is_some() { " * norm" } else { "" };
    let sum = |m: &str| {
        let pick = |of: &str, k| match k {
            0 => format!("{m}s0"),
            _ => format!("select({of}, {m}s{k}, e >= {}u)", k * lanes),
        };
        let sum = (0..count.div_ceil(lanes)).fold(String::new(), |of, k| pick(&of, k));
        format!("apart({sum} * p.{m}_factor{norm})")
    };
    let (first, second) = (sum("a"), sum("b"));
    body += &format!("for (var e = lane; e < {count}u; e += lanes) {{\nvar v = {first};\n");
    if let Some(f) = g.gate {
        let f = super::chain::activation(&mut s, f);
        body += &format!("v = {f}(v) * {second};\n");
    }
    let biases = match g.choice {
        Choice::Sum { used, bias: true } => {
            let add = |i| format!("v = fma(shares[{i}], bias_of[starts[{i}] + n], v);\n");
            format!("if place < stop {{\n{}}}\n", (0..used).map(add).collect::<String>())
        }
        _ => String::new(),
    };
    let norm = if is_early { "norm_early".into() } else { format!("norm_of[{offset}n]") };
    let keep = g.round.map_or(String::new(), |round| {
        let at = format!("e % {tile}u * {per_group}u + n - group.x * {per_group}u");
        ends::keep(round, &at, &norm)
    });
    body += &format!(
        "{place}{biases}if place < stop{bound} {{
v = finish(t, {offset}n, v);
{keep}}}
}}\n}}\n"
    );
    if let Some(round) = g.round {
        body += &rounded(round, tile, per_group, row.is_empty());
    }
    s.build(&body)
}

/// Declares the choice of experts; statements that leave the first row of the expert's matrix in `start`, for a sum of all of
/// them those rows in `starts`, with their weights in `shares`.
fn experts(s: &mut Source, g: &Gemv<'_>) -> String {
    match g.choice {
        Choice::All => String::new(),
        Choice::Experts { used, .. } => {
            let mut text = format!("let token = group.y / {used}u;\nlet slot = group.y % {used}u;\n");
            let expert = match &g.choose {
                None => {
                    s.read("route", "f32");
                    s.words("u32", &["each"]);
                    format!("u32(route[(2u * token + 1u) * {used}u + slot])")
                }
                Some((route, bias)) => {
                    s.read("logits", "f32");
                    if *bias {
                        s.read("bias", "f32");
                    }
                    s.write("route", "f32");
                    s.words("u32", &["each", "experts"]);
                    text += "let row = token * p.experts;\n";
                    text += &choose(s, route, *bias, g.threads, (MOST_EXPERTS, "p.experts"));
                    text += &format!(
                        "if group.x == 0u && slot == 0u && local < {used}u {{
route[2u * token * {used}u + local] = weight(local);
route[(2u * token + 1u) * {used}u + local] = f32(ids[local]);
}}\n"
                    );
                    String::from("workgroupUniformLoad(&ids[slot])")
                }
            };
            text + &format!(
                "let skip = {expert} * p.each;
// Experts of another part of the stack.
if skip < p.first || skip >= p.first + p.n {{ return; }}
let start = skip - p.first;\n"
            )
        }
        Choice::Sum { used, bias } => {
            s.read("route", "f32");
            if bias {
                s.read("bias_of", "f32");
            }
            s.words("u32", &["each"]);
            s.shared("starts", "u32", used);
            s.shared("shares", "f32", used);
            format!(
                "let token = group.y;
if local < {used}u {{
starts[local] = u32(route[(2u * token + 1u) * {used}u + local]) * p.each;
shares[local] = route[2u * token * {used}u + local];
}}
workgroupBarrier();\n"
            )
        }
    }
}

/// Sums of all lanes.
fn main_loop(g: &Gemv<'_>, tile: usize, matrices: &[Weights<'_>]) -> String {
    let matrix = |m: usize| ["a", "b"][m];
    let once = matrices[0].at_once();
    let ahead = g.ahead;
    let sum = if let Choice::Sum { used, .. } = g.choice { Some(used) } else { None };
    // A sum goes through the rows of all experts as if they were one.
    let end = sum.map_or("p.halves".into(), |used| format!("p.halves * {used}u"));
    let mut body = format!("for (var h = lane; h < {end}; h += lanes * {ahead}u) {{\n");
    for u in 0..ahead {
        body += &match (u, g.even) {
            (0, _) => String::from("let h0 = h;\n"),
            (_, true) => format!("let h{u} = h + lanes * {u}u;\n"),
            (_, false) => format!(
                "let in{u} = h + lanes * {u}u < {end};\nlet h{u} = select(h, h + lanes * {u}u, in{u});\n"
            ),
        };
        let mut at = format!("h{u}");
        if sum.is_some() {
            let by = if once == 1 { String::new() } else { format!(" / {once}u") };
            body += &format!(
                "let slot{u} = h{u} / p.halves;
let i{u} = h{u} - slot{u} * p.halves;
let w{u} = starts[slot{u}] * p.halves{by} + i{u};
let share{u} = shares[slot{u}];\n"
            );
            at = format!("w{u}");
        }
        for (m, weights) in matrices.iter().enumerate() {
            for r in (0..g.per_sub).step_by(once) {
                let name = matrix(m);
                let names: Vec<_> = (r..r + once).map(|r| format!("{name}v{u}_{r}_")).collect();
                body += &weights.load(&names, &format!("{name}r{r}"), &at);
            }
        }
        for t in 0..tile {
            body += &load_input(g, (u, t), matrices[0].needs_sums());
            if g.norm.is_some() {
                body += &format!("let x{u}_{t}q = squares[t{t} * p.halves + h{u}];\n");
            }
        }
    }
    for u in 0..ahead {
        let guard = (u > 0 && !g.even).then(|| format!("in{u}"));
        for t in 0..tile {
            let x = format!("x{u}_{t}");
            if g.norm.is_some() {
                body += &match &guard {
                    Some(guard) => format!("q{t} += select(0.0, {x}q, {guard});\n"),
                    None => format!("q{t} += {x}q;\n"),
                };
            }
            for (m, weights) in matrices.iter().enumerate() {
                for r in 0..g.per_sub {
                    let v = format!("{}v{u}_{r}_", matrix(m));
                    let to = format!("{}{r}_{t}", matrix(m));
                    let guard = guard.as_deref();
                    body += &match g.input {
                        Input::Codes => {
                            let signed = (0..4).map(|j| format!("dot4I8Packed({v}{j}, {x}[{j}])"));
                            let dot = format!("f32({})", signed.collect::<Vec<_>>().join(" + "));
                            let (scale, sum) = (format!("{x}s.x"), format!("{x}s.y"));
                            weights.add_share(&to, &v, [&dot, &scale], &sum, guard)
                        }
                        _ => {
                            let mut text = String::from("{ var d = 0.0;\n");
                            for j in 0..4 {
                                text += &format!("let n{j} = {};\n", weights.numbers(&v, j));
                                for c in ["x", "y", "z", "w"] {
                                    text += &format!("d = fma(n{j}.{c}, {x}_{j}.{c}, d);\n");
                                }
                            }
                            text + &weights.add_share(&to, &v, ["d", "1.0"], &format!("{x}s"), guard) + "}\n"
                        }
                    };
                }
            }
        }
    }
    body + "}\n"
}

/// Piece `u` of input row `t`, as `x{u}_{t}`.
fn load_input(g: &Gemv<'_>, (u, t): (usize, usize), sums: bool) -> String {
    let name = format!("{u}_{t}");
    let sum = if let Choice::Sum { used, .. } = g.choice { Some(used) } else { None };
    let (row, h) = match sum {
        Some(used) => (format!("(t{t} * {used}u + slot{u})"), format!("i{u}")),
        None => (format!("t{t}"), format!("h{u}")),
    };
    let share = if sum.is_some() { format!(" * share{u}") } else { String::new() };
    let mut text = String::new();
    match g.input {
        Input::Codes => {
            let at = format!("{row} * p.halves + {h}");
            return format!("let x{name} = x[{at}];\nlet x{name}s = xs[{at}]{share};\n");
        }
        Input::Floats => {
            for j in 0..4 {
                let norm = match g.norm {
                    Some(_) => format!(" * norm_by[{h} * 4u + {j}u]"),
                    None => String::new(),
                };
                text +=
                    &format!("let x{name}_{j} = x[{row} * (p.k >> 2u) + {h} * 4u + {j}u]{norm}{share};\n");
            }
        }
        Input::Ragged => {
            for j in 0..4 {
                let one = |c: usize| {
                    let k = format!("{h} * 16u + {}u", j * 4 + c);
                    format!("select(0.0, x[{row} * p.k + min({k}, p.k - 1u)], {k} < p.k)")
                };
                text += &format!(
                    "let x{name}_{j} = vec4<f32>({}, {}, {}, {}){share};\n",
                    one(0),
                    one(1),
                    one(2),
                    one(3)
                );
            }
        }
    }
    if sums {
        let all = (0..4).map(|j| format!("x{name}_{j}")).collect::<Vec<_>>().join(" + ");
        text += &format!("let x{name}s = dot({all}, vec4<f32>(1.0));\n");
    }
    text
}
