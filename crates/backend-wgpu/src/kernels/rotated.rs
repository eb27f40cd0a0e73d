//! Products of few rows with matrices whose inputs and results are rotated by Walsh-Hadamard transforms.
//!
//! Every workgroup makes the input itself, from what the products before left: that costs less than a call that makes it once.
//! Results stay as they are, sums of a run of the row each if it is cut into runs; whoever reads them adds them up and rotates
//! them.

use super::{
    program::{BLOCK, PADDED, Step, Writer, vectors},
    weights::Weights,
};
use crate::{
    form::Form,
    selfcheck,
    shader::{Shader, Source},
};

/// Sizes of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Invocations.
    pub threads: usize,
    /// Results that a subgroup makes at once: a multiple of those that the form reads at once.
    pub per_sub: usize,
    /// Results that a workgroup makes.
    pub per_group: usize,
    /// Pieces of a row that a lane asks for before it waits for the first.
    pub ahead: usize,
    /// Rows.
    pub tile: usize,
}

/// What a product is made for.
#[derive(Clone, Debug)]
pub struct Rotated<'a> {
    /// How the matrices lie.
    pub form: &'a Form,
    /// What makes a row.
    pub program: &'a [Step],
    /// Whether that row goes to a buffer too.
    pub keep: bool,
    /// The epsilon of a norm behind it.
    pub norm: Option<f32>,
    /// Matrices, each behind a vector that multiplies the row, and a transform.
    pub matrices: usize,
    /// Numbers of a run: whole blocks.
    pub run: usize,
    /// Sizes.
    pub sizes: Sizes,
    /// Whether runs divide into pieces for every lane.
    pub even: bool,
}

/// Names of matrices: as many as a kernel takes at most.
pub const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// Bindings: those of the program (see [`Writer::steps`]), the row if it is kept, the norm's weight, for each matrix the vector
/// and its planes, then the results: those of all matrices side by side, row by row, run by run. Words: `k`, `halves`, those
/// of the program, for each matrix `wN` (results) and its factor. Grid: groups of results of each matrix, rows / tile, runs.
pub fn product(g: &Rotated<'_>) -> Shader {
    let Sizes { threads, per_sub, per_group, ahead, tile } = g.sizes;
    let mut s = Source::new(format!("rotated {} x{tile}", g.form.describe()), threads as u32);
    s.subgroups();
    s.words("u32", &["k", "halves"]);
    let mut w = Writer::new(&mut s, (g.run, tile), threads, "p.k", "group.z");
    let mut body = w.places();
    // Which matrix: `groups` counts its groups of results, `side` the results before it.
    body += "var groups = group.x;\nvar side = 0u;\nvar which = 0u;\n";
    for before in 0..g.matrices - 1 {
        body += &format!(
            "let ends{before} = (p.w{before} + {}u) / {per_group}u;
if which == {before}u && groups >= ends{before} {{
groups -= ends{before};
side += p.w{before};
which = {}u;
}}\n",
            per_group - 1,
            before + 1
        );
    }
    body += &format!(
        "for (var r = 0u; r < {tile}u; r += 1u) {{
let row = min(group.y * {tile}u + r, p.rows - 1u);
let base = r * {}u;\n",
        vectors(g.run)
    );
    body += &w.steps(&mut s, g.program, "c");
    let quads = w.quads;
    let scale = (BLOCK as f32).sqrt().recip();
    if g.keep {
        s.write("kept", "vec4<f32>");
        body += "if group.x == 0u {\n";
        body += &w.each(|j| format!("kept[row * fours + n{j}] = v0_{j};\n"));
        body += "}\n";
    }
    if g.norm.is_some() {
        s.read("norm_by", "vec4<f32>");
        s.shared("partial", "f32", tile * threads / 4);
        body += "var squares = 0.0;\n";
        body += &w.each(|j| format!("squares += dot(v0_{j}, v0_{j});\n"));
        body += "squares = subgroupAdd(squares);\nif lane == 0u { partial[r * subs + sub] = squares; }\n";
        body += &(0..quads).map(|j| format!("v0_{j} *= norm_by[n{j}];\n")).collect::<String>();
    }
    let mut matrices = vec![];
    for (m, name) in NAMES.iter().take(g.matrices).enumerate() {
        s.read(&format!("by{m}"), "vec4<f32>");
        s.words("u32", &[&format!("w{m}")]);
        matrices.push(Weights::declare(&mut s, g.form, name));
    }
    s.write("y", "f32");
    for m in 0..g.matrices {
        if g.matrices > 1 {
            body += &format!("if which == {m}u {{\n");
        }
        body += &(0..quads).map(|j| format!("v0_{j} *= by{m}[n{j}];\n")).collect::<String>();
        body += if g.matrices > 1 { "}\n" } else { "" };
    }
    body += &w.spread("v0_");
    body += "across(t, base);\n}\n";
    for t in 0..tile {
        body += &match g.norm {
            Some(eps) => format!(
                "var total{t} = 0.0;
for (var i = 0u; i < subs; i += 1u) {{ total{t} += partial[{t}u * subs + i]; }}
let scale{t} = {scale:?} * inverseSqrt(total{t} / f32(p.k) + f32({eps:?}));\n"
            ),
            None => format!("let scale{t} = {scale:?};\n"),
        };
    }
    let all: String = (0..g.matrices).map(|m| format!("{}p.w{m}", if m > 0 { " + " } else { "" })).collect();
    body += &format!(
        "let start = group.z * {0}u;
let count = min({0}u, p.halves - start);\n",
        g.run / 16
    );
    for (m, weights) in matrices.iter().enumerate() {
        if g.matrices > 1 {
            body += &format!("if which == {m}u {{\n");
        }
        body += &format!(
            "let stop = min((groups + 1u) * {per_group}u, p.w{m});
for (var at = groups * {per_group}u + sub * {per_sub}u; at < stop; at += subs * {per_sub}u) {{\n"
        );
        let once = weights.at_once();
        for r in 0..per_sub {
            if r.is_multiple_of(once) {
                body += &weights.row(&format!("r{r}"), &format!("min(at + {r}u, p.w{m} - {once}u)"));
            }
            (0..tile).for_each(|t| body += &format!("var s{r}_{t} = 0.0;\n"));
        }
        body += &format!("for (var h = lane; h < count; h += lanes * {ahead}u) {{\n");
        for u in 0..ahead {
            body += &match (u, g.even) {
                (0, _) => String::from("let h0 = h;\n"),
                (_, true) => format!("let h{u} = h + lanes * {u}u;\n"),
                (_, false) => format!(
                    "let in{u} = h + lanes * {u}u < count;\nlet h{u} = select(h, h + lanes * {u}u, in{u});\n"
                ),
            };
            for r in (0..per_sub).step_by(once) {
                let names: Vec<_> = (r..r + once).map(|r| format!("v{u}_{r}_")).collect();
                body += &weights.load(&names, &format!("r{r}"), &format!("(start + h{u})"));
            }
        }
        for u in 0..ahead {
            body += &format!("let x{u} = h{u} / 8u * {PADDED}u + h{u} % 8u * 5u;\n");
            for (t, j) in (0..tile).flat_map(|t| (0..4).map(move |j| (t, j))) {
                body += &format!("let x{u}_{t}_{j} = turned[x{u} + {}u];\n", t * vectors(g.run) + j);
            }
            for r in 0..per_sub {
                let v = format!("v{u}_{r}_");
                body += "{\n";
                for j in 0..4 {
                    body += &format!("let n{j} = {};\n", weights.numbers(&v, j));
                }
                let guard = (u > 0 && !g.even).then(|| format!("in{u}"));
                for t in 0..tile {
                    body += "{ var d = 0.0;\n";
                    for (j, c) in (0..4).flat_map(|j| ["x", "y", "z", "w"].map(|c| (j, c))) {
                        body += &format!("d = fma(n{j}.{c}, x{u}_{t}_{j}.{c}, d);\n");
                    }
                    let to = format!("s{r}_{t}");
                    body += &weights.add_share(&to, &v, ["d", "1.0"], "0.0", guard.as_deref());
                    body += "}\n";
                }
                body += "}\n";
            }
        }
        body += "}\n";
        for (r, t) in (0..per_sub).flat_map(|r| (0..tile).map(move |t| (r, t))) {
            let factor = NAMES[m];
            body += &format!("let y{r}_{t} = subgroupAdd(s{r}_{t}) * p.{factor}_factor * scale{t};\n");
        }
        // Each result is written by a lane of its own.
        body += &format!("for (var e = lane; e < {}u; e += lanes) {{\nvar v = y0_0;\n", per_sub * tile);
        for e in 1..per_sub * tile {
            body += &format!("v = select(v, y{}_{}, e == {e}u);\n", e / tile, e % tile);
        }
        body += &format!(
            "let n = at + e / {tile}u;
let row = group.y * {tile}u + e % {tile}u;
let into = (group.z * p.rows + row) * ({all}) + side;
if n < stop && row < p.rows {{ y[into + {}] = v; }}\n}}\n}}\n",
            weights.result("n")
        );
        body += if g.matrices > 1 { "}\n" } else { "" };
    }
    s.build(&body).with(selfcheck::Rotated::new(g))
}

/// Rows that programs make. Bindings: for each those of the program, then its row. Words: for each `kN` (numbers of a row), then
/// those of the program. Grid: blocks of all, rows.
pub fn rows(programs: &[&[Step]]) -> Shader {
    let threads = BLOCK / 4;
    let mut s = Source::new("rotated back", threads as u32);
    s.subgroups();
    let mut body =
        String::from("let row = group.y;\nlet base = 0u;\nvar block = group.x;\nvar which = 0u;\n");
    let mut parts = String::new();
    for (m, program) in programs.iter().enumerate() {
        let k = format!("p.k{m}");
        s.words("u32", &[&k[2..]]);
        if m > 0 {
            let before = format!("p.k{} / {BLOCK}u", m - 1);
            body += &format!(
                "if which == {}u && block >= {before} {{ block -= {before}; which = {m}u; }}\n",
                m - 1
            );
        }
        let mut w = Writer::new(&mut s, (BLOCK, 1), threads, &k, "block");
        let text = w.steps(&mut s, program, &format!("c{m}_"));
        s.write(&format!("y{m}"), "vec4<f32>");
        parts += &format!("if which == {m}u {{\n{}{text}y{m}[row * fours + n0] = v0_0;\n}}\n", w.places());
    }
    let programs = programs.iter().map(|program| program.to_vec()).collect();
    s.build(&(body + &parts)).with(selfcheck::RotatedBack { programs })
}
