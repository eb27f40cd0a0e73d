//! What makes a row of numbers from what lies in buffers, in a workgroup: element-wise ops and Walsh-Hadamard transforms of blocks.

use super::chain::{Link, activation};
use crate::shader::Source;

/// Numbers of a block.
pub const BLOCK: usize = 128;

/// Vectors that a block takes in workgroup memory: 16 numbers are followed by 4 unused ones and a block by 8, so that neither
/// those who read 16 numbers in a row nor those who read every eighth number get in each other's way.
pub const PADDED: usize = 42;

/// A step on the numbers of a row, which lie on a stack.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Puts down numbers from a buffer, the sums of so many runs.
    Load(usize),
    /// The transform of every block.
    Rotate,
    /// An element-wise op, whose operand is in a buffer.
    Link(Link),
    /// An element-wise op, whose operand lies below; the result takes the place of both.
    Join(Link),
}

/// Writes what makes a run of a row: every invocation holds some of its fours, every so many of them.
pub struct Writer<'a> {
    run: usize,
    threads: usize,
    /// Fours of an invocation.
    pub quads: usize,
    k: &'a str,
    /// Which run.
    at: &'a str,
}

impl<'a> Writer<'a> {
    /// For runs of `run` numbers, of rows of `k` numbers (an expression); `at` is the run (an expression). There is room for
    /// as many `rows` in workgroup memory.
    pub fn new(s: &mut Source, (run, rows): (usize, usize), threads: usize, k: &'a str, at: &'a str) -> Self {
        s.item(&format!("var<workgroup> turned: array<vec4<f32>, {}>;", rows * vectors(run)));
        s.item(
            "fn pairs(v: vec4<f32>) -> vec4<f32> {
let a = vec4<f32>(v.xz + v.yw, v.xz - v.yw);
return vec4<f32>(a.x + a.y, a.z + a.w, a.x - a.y, a.z - a.w);
}",
        );
        s.item(&across(run, threads));
        Self { run, threads, quads: (run / 4).div_ceil(threads), k, at }
    }

    /// Statements that say where an invocation's fours lie: `n0` and so on in a row, `at0` and so on in workgroup memory, where the
    /// row `row` of all begins at `base`.
    pub fn places(&self) -> String {
        let mut text = format!(
            "let t = sub * lanes + lane;\nlet odd = (lane & 1u) == 1u;\nlet fours = {} >> 2u;\n",
            self.k
        );
        for j in 0..self.quads {
            text += &format!(
                "let q{j} = t + {}u;
let n{j} = min({} * {}u + q{j}, fours - 1u);
let at{j} = q{j} / 32u * {PADDED}u + q{j} % 32u / 4u * 5u + q{j} % 4u;\n",
                j * self.threads,
                self.at,
                self.run / 4
            );
        }
        text
    }

    /// A statement for each four that is in the run and in the row.
    pub fn each(&self, statement: impl Fn(usize) -> String) -> String {
        let one = |j| {
            let inside = format!("{} * {}u + q{j} < fours", self.at, self.run / 4);
            format!("if q{j} < {}u && {inside} {{ {} }}\n", self.run / 4, statement(j))
        };
        (0..self.quads).map(one).collect()
    }

    /// Statements that write the fours to workgroup memory, with the first three of seven stages done.
    pub fn spread(&self, v: &str) -> String {
        let one = |j| {
            format!(
                "{{ let a = pairs({v}{j});
let b = subgroupShuffleXor(a, 1u);
if q{j} < {}u {{ turned[base + at{j}] = select(a + b, b - a, odd); }} }}\n",
                self.run / 4
            )
        };
        (0..self.quads).map(one).collect()
    }

    /// Declares what a program reads: for each step its buffer, if it has one, whose name begins with `prefix`; of a load the words
    /// `strideN` and `skipN`, how many numbers a row of the buffer has, and how many of them come first. Statements that leave
    /// what it makes in `v0_0` and so on.
    pub fn steps(&mut self, s: &mut Source, program: &[Step], prefix: &str) -> String {
        let mut text = String::new();
        let scale = (BLOCK as f32).sqrt().recip();
        let deepest = depth(program);
        for (level, j) in (0..deepest).flat_map(|level| (0..self.quads).map(move |j| (level, j))) {
            text += &format!("var v{level}_{j} = vec4<f32>(0.0);\n");
        }
        let mut level = 0;
        for (i, step) in program.iter().enumerate() {
            let name = format!("{prefix}{i}");
            match step {
                Step::Load(runs) => {
                    s.read(&name, "vec4<f32>");
                    s.words("u32", &[&format!("stride{name}"), &format!("skip{name}")]);
                    for j in 0..self.quads {
                        let one = |run: usize| {
                            format!(
                                "{name}[((({run}u * p.rows + row) * p.stride{name} + p.skip{name}) >> 2u) + n{j}]"
                            )
                        };
                        let sum: Vec<_> = (0..*runs).map(one).collect();
                        text += &format!("v{level}_{j} = {};\n", sum.join(" + "));
                    }
                    level += 1;
                }
                Step::Rotate => {
                    let v = format!("v{}_", level - 1);
                    text += &self.spread(&v);
                    text += "across(t, base);\n";
                    for j in 0..self.quads {
                        let inside = format!("q{j} < {}u", self.run / 4);
                        text += &format!("if {inside} {{ {v}{j} = turned[base + at{j}] * {scale:?}; }}\n");
                    }
                }
                Step::Link(link) => {
                    let element = if *link == Link::MulScalar { "f32" } else { "vec4<f32>" };
                    if link.has_operand() {
                        s.read(&name, element);
                    }
                    for j in 0..self.quads {
                        let operand = match link {
                            Link::AddVector | Link::MulVector => format!("{name}[n{j}]"),
                            Link::MulScalar => format!("{name}[0]"),
                            _ => format!("{name}[row * fours + n{j}]"),
                        };
                        let v = format!("v{}_{j}", level - 1);
                        text += &format!("{v} = {};\n", linked(s, link, &v, &operand));
                    }
                }
                Step::Join(link) => {
                    level -= 1;
                    for j in 0..self.quads {
                        let below = format!("v{}_{j}", level - 1);
                        let made = linked(s, link, &format!("v{level}_{j}"), &below);
                        text += &format!("{below} = {made};\n");
                    }
                }
            }
        }
        text
    }
}

/// Vectors that a run takes in workgroup memory.
pub fn vectors(run: usize) -> usize {
    run / BLOCK * PADDED
}

/// Rows that lie on the stack at once.
fn depth(program: &[Step]) -> usize {
    let (mut level, mut most) = (0usize, 0);
    for step in program {
        match step {
            Step::Load(_) => level += 1,
            Step::Join(_) => level -= 1,
            Step::Rotate | Step::Link(_) => {}
        }
        most = most.max(level);
    }
    most
}

/// The last four of seven stages, in workgroup memory: an invocation takes every eighth number of a block.
fn across(run: usize, threads: usize) -> String {
    // Vectors from the first one on, of number 8 * j.
    let place = |j: usize| j / 2 * 5 + j % 2 * 2;
    let mut text = format!(
        "fn across(t: u32, base: u32) {{
workgroupBarrier();
for (var u = t; u < {}u; u += {threads}u) {{
let first = base + u / 8u * {PADDED}u + u % 8u / 4u;
let c = u % 4u;\n",
        run / 16
    );
    for i in 0..4 {
        let numbers: Vec<_> =
            (4 * i..4 * i + 4).map(|j| format!("turned[first + {}u][c]", place(j))).collect();
        text += &format!("let a{i} = pairs(vec4<f32>({}));\n", numbers.join(", "));
    }
    text += "let b0 = a0 + a1;
let b1 = a0 - a1;
let b2 = a2 + a3;
let b3 = a2 - a3;
let d0 = b0 + b2;
let d1 = b1 + b3;
let d2 = b0 - b2;
let d3 = b1 - b3;\n";
    for j in 0..16 {
        text += &format!("turned[first + {}u][c] = d{}[{}];\n", place(j), j / 4, j % 4);
    }
    text + "}\nworkgroupBarrier();\n}"
}

/// An expression for a link on four numbers `v` with four operands.
fn linked(s: &mut Source, link: &Link, v: &str, operand: &str) -> String {
    let mut each = |f, x: &str| {
        let f = activation(s, f);
        format!("vec4<f32>({f}({x}.x), {f}({x}.y), {f}({x}.z), {f}({x}.w))")
    };
    match link {
        Link::AddVector | Link::AddValue => format!("{v} + {operand}"),
        Link::MulVector | Link::MulScalar | Link::MulValue => format!("{v} * {operand}"),
        Link::GateOf(f) => format!("{} * {operand}", each(*f, v)),
        Link::GatedBy(f) => format!("{v} * {}", each(*f, operand)),
        Link::Scale(factor) => format!("{v} * f32({factor:?})"),
        Link::Activate(f) => each(*f, v),
        Link::SoftCap(cap) => {
            let tanh = each(nibble_graph::Activation::Tanh, &format!("({v} / f32({cap:?}))"));
            format!("f32({cap:?}) * {tanh}")
        }
    }
}
