//! Causal attention of rows over the bank, split by runs of pages.
//!
//! A workgroup takes one row, one head of keys with up to [`GROUP`] heads of queries, and a run of pages. Page by page, two
//! invocations score a position; then each sums some numbers of some values, all of them read at once. What the runs yield
//! is joined by a second kernel. How a sequence is cut into runs depends on the row's position alone, so the result does
//! not depend on how rows are put into steps.

use super::{
    chain,
    kv::{Bank, PAGE},
    kv_blocks::{self, BLOCK},
    quantize,
};
use crate::shader::{Shader, Source};
use nibble_graph::{Activation, Attention};

/// Heads of queries in a workgroup.
pub const GROUP: usize = 8;

/// Runs of a sequence at most.
pub const RUNS: usize = 64;

/// Invocations of a workgroup: two for each position of a page.
const THREADS: u32 = 2 * PAGE;

/// Bytes of workgroup memory for sums on their way.
const ROOM: u32 = 16 << 10;

/// Words of keys, or of values, that an invocation reads at once.
const AT_ONCE: u32 = 8;

/// How the heads of an attention are divided among workgroups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// Heads of queries that share a head of keys.
    pub shared: usize,
    /// How many of them a workgroup takes.
    pub group: usize,
    /// Workgroups for each head of keys.
    pub groups: usize,
}

impl Heads {
    /// The division for an op.
    pub fn new(a: &Attention, bank: &Bank) -> Self {
        let shared = a.heads / bank.layer.kv_heads;
        let group = (1..=GROUP.min(shared)).rev().find(|&g| shared.is_multiple_of(g)).unwrap_or(1);
        Self { shared, group, groups: shared / group }
    }
}

/// What becomes of the runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// A workgroup for each; [`join`] follows.
    Apart,
    /// One workgroup takes a whole sequence as one run.
    One,
    /// One workgroup takes all runs, one by one, and joins them as [`join`] does when it is to be repeatable.
    InTurn,
}

/// Runs of the longest sequence.
pub fn runs(context: usize) -> usize {
    context.div_ceil(PAGE as usize).min(RUNS)
}

/// `run_of(end)`: pages in a run of a sequence that ends before `end`.
const RUN_OF: &str = "fn run_of(end: u32) -> u32 { let pages = (end + 63u) / 64u; var run = 1u; \
                      while run * 64u < pages { run *= 2u; } return run; }";

/// Both joins in turn: a sum with its weight, in one order of operations.
const MERGE: &str =
    "fn merge(sum: f32, keep: f32, more: f32, weight: f32) -> f32 { return fma(more, weight, sum * keep); }";

/// WGSL of the first position that a row sees; its own is `end - 1`.
fn begin(a: &Attention) -> String {
    a.window.map_or("0u".into(), |w| format!("select(0u, end - {w}u, end > {w}u)"))
}

/// Bindings: step rows, sequences, pages, q, keys, values, then sums (`[rows, heads, runs, value_dim]`) and maximum with
/// total (`[rows, heads, runs]`) or, unless runs are apart, the result and, with `sinks`, these (`[heads]`: scores of one more
/// position without a value). Words: `runs`. Grid: kv heads * groups, rows, runs.
pub fn attend(a: &Attention, bank: &Bank, how: Runs, sinks: bool) -> Shader {
    let heads = Heads::new(a, bank);
    let mut s = Source::new("attention", THREADS);
    s.subgroups();
    s.read("step", "vec4<u32>");
    s.read("sequences", "vec4<u32>");
    s.read("pages", "u32");
    s.read("q", "f32");
    s.read("keys", words(bank.unit()));
    s.read("values", words(bank.value_unit()));
    s.write("sums", "f32");
    if how == Runs::Apart {
        s.write("stats", "vec2<f32>");
    } else if sinks {
        s.read("sinks", "f32");
    }
    s.words("u32", &["runs"]);
    s.item(RUN_OF);
    let (g, key_dim) = (heads.group, bank.layer.key_dim);
    let padded = bank.padded()[0] as u32;
    s.shared("query", &format!("array<f32, {}>", g as u32 * padded));
    s.shared("weight", &format!("array<f32, {}>", g as u32 * THREADS));
    s.shared("most_of", &format!("array<f32, {}>", g * 16));
    s.shared("total_of", &format!("array<f32, {}>", g * 16));
    let mut body = format!(
        "let place = step[group.y];
let kv_head = group.x / {groups}u;
let first_head = kv_head * {shared}u + group.x % {groups}u * {g}u;
let end = place.y + 1u;
let begin = {begin};
let run = run_of(end);
let seen_pages = (end + {PAGE}u - 1u) / {PAGE}u;
let table = sequences[place.z * 2u].x;
let at_position = local % {PAGE}u;
let side = local / {PAGE}u;
",
        groups = heads.groups,
        shared = heads.shared,
        begin = begin(a),
    );
    let sums = Sums::new(bank, g);
    let of_run = |from: &str| {
        format!(
            "let first_page = max(begin / {PAGE}u, {from} * run);\nlet end_page = min(seen_pages, ({from} + 1u) * run);\n"
        )
    };
    match how {
        Runs::Apart => body += &(of_run("group.z") + "if first_page >= end_page { return; }\n"),
        Runs::One => body += &format!("let first_page = begin / {PAGE}u;\nlet end_page = seen_pages;\n"),
        Runs::InTurn => {}
    }
    body += &format!(
        "for (var i = local; i < {len}u; i += {THREADS}u) {{
let d = i % {padded}u;
let at = (group.y * {all}u + first_head + i / {padded}u) * {key_dim}u + min(d, {key_dim}u - 1u);
query[i] = select(0.0, q[at] * {scale:?}, d < {key_dim}u);
}}
workgroupBarrier();\n",
        len = g as u32 * padded,
        all = a.heads,
        scale = a.scale,
    );
    if how == Runs::InTurn {
        s.item(MERGE);
        body += &sums.declare_joined();
        body += &format!(
            "for (var r = begin / {PAGE}u / run; r * run < seen_pages; r += 1u) {{\n{}",
            of_run("r")
        );
    }
    for i in 0..g {
        body += &format!("var most{i} = -1e30;\nvar total{i} = 0.0;\n");
    }
    body += &sums.declare();
    body += &format!(
        "for (var at = first_page; at < end_page; at += 1u) {{
let page = pages[table + at];
let position = at * {PAGE}u + at_position;
let seen = position >= begin && position < end;\n"
    );
    body += &scores(bank, g);
    body += &weights(&mut s, a, g);
    for i in 0..g {
        body += &sums.scale(i, &format!("keep{i}"));
    }
    body += &sums.add(bank);
    body += "workgroupBarrier();\n}\n";
    sums.share(&mut s);
    body += &match how {
        Runs::Apart => sums.store_run(a),
        Runs::One => sums.store(a, false, sinks),
        Runs::InTurn => sums.merge() + "}\n" + &sums.store(a, true, sinks),
    };
    s.build(&body)
}

/// What a sink adds to a total of weights relative to the score `most`; nothing without sinks.
pub fn sink(sinks: bool, head: &str, most: &str) -> String {
    if !sinks {
        return String::new();
    }
    format!(" + exp(clamp(sinks[{head}] - {most}, -80.0, 80.0))")
}

/// The type of so many words.
fn words(unit: u32) -> &'static str {
    ["", "u32", "vec2<u32>", "", "vec4<u32>"][unit as usize]
}

/// Component `i` of a vector of `unit` words.
fn component(unit: u32, i: u32) -> &'static str {
    if unit == 1 { "" } else { [".x", ".y", ".z", ".w"][i as usize] }
}

/// `{v}_0`, `{v}_1` and so on: the numbers of a word, or its codes.
fn numbers(v: &str, word: &str, per_word: usize) -> String {
    let vectors = match per_word {
        1 => return format!("let {v}_0 = bitcast<f32>({word});\n"),
        2 => vec![format!("unpack2x16float({word})")],
        4 => vec![format!("vec4<f32>(unpack4xI8({word}))")],
        _ => ["", " >> 4u"]
            .map(|shift| format!("vec4<f32>(unpack4xU8(({word}{shift}) & 0x0f0f0f0fu)) - 8.0"))
            .into(),
    };
    let mut text = String::new();
    for (i, vector) in vectors.iter().enumerate() {
        text += &format!("let {v}_p{i} = {vector};\n");
        for c in 0..per_word.min(4) {
            text += &format!("let {v}_{} = {v}_p{i}.{};\n", 4 * i + c, ["x", "y", "z", "w"][c]);
        }
    }
    text
}

/// WGSL of the scale of block `block` at a position of a head, whose scales begin at word `at`, for that position.
fn scale_of(array: &str, unit: u32, at: &str, block: &str) -> String {
    let word = format!("({at} + ({block}) / 2u * {PAGE}u)");
    let word = match unit {
        1 => format!("{array}[{word}]"),
        _ => format!("{array}[{word} / {unit}u][{word} % {unit}u]"),
    };
    format!("unpack2x16float({word})[({block}) % 2u]")
}

/// Units of eight codes in a block.
const UNITS: u32 = BLOCK as u32 / 8;

/// Leaves in `weight` for each head two halves of the score of each position.
fn scores(bank: &Bank, g: usize) -> String {
    let (unit, per_word) = (bank.unit(), bank.per_word as u32);
    let [key, _] = bank.row_words();
    let [key_page, _] = bank.page_words();
    let [head_words, _] = bank.head_words();
    let padded = key * per_word;
    let units = key / unit;
    let each = units.div_ceil(2);
    let mut text = String::new();
    for i in 0..g {
        text += &format!("var s{i} = 0.0;\n");
    }
    text += &format!(
        "let key_at = (page * {key_page}u + kv_head * {head_words}u) / {unit}u + at_position;\nlet first_unit = side * {each}u;\n"
    );
    // So many units have one scale, whichever half of the head they belong to.
    let group = [UNITS, 2, 1].into_iter().find(|group| each % group == 0).expect("1 divides");
    if bank.is_blocks() {
        let codes = key * PAGE;
        text += &format!(
            "let scale_at = page * {key_page}u + kv_head * {head_words}u + {codes}u + at_position;\n"
        );
        for i in 0..g {
            text += &format!("var part{i} = 0.0;\n");
        }
    }
    let sum = if bank.is_blocks() { "part" } else { "s" };
    for first in (0..each).step_by(AT_ONCE as usize) {
        let chunk = first..each.min(first + AT_ONCE);
        text += "{\n";
        for u in chunk.clone() {
            text += &format!("let k{u} = keys[key_at + min(first_unit + {u}u, {}u) * {PAGE}u];\n", units - 1);
        }
        for u in chunk {
            // The second half may be a unit shorter.
            let guard = units % 2 == 1 && u == each - 1;
            text += if guard { "if side == 0u {\n" } else { "{\n" };
            for w in 0..unit {
                text += &numbers(&format!("k{u}_{w}"), &format!("k{u}{}", component(unit, w)), bank.per_word);
                for i in 0..g as u32 {
                    for c in 0..per_word {
                        let at = i * padded + (u * unit + w) * per_word + c;
                        let base = unit * per_word;
                        let query = format!("query[first_unit * {base}u + {at}u]");
                        text += &format!("{sum}{i} = fma(k{u}_{w}_{c}, {query}, {sum}{i});\n");
                    }
                }
            }
            text += "}\n";
            if bank.is_blocks() && (u + 1) % group == 0 {
                let block = format!("(first_unit + {u}u) / {UNITS}u");
                text += &format!("let d{u} = {};\n", scale_of("keys", unit, "scale_at", &block));
                for i in 0..g {
                    text += &format!("s{i} = fma(part{i}, d{u}, s{i});\npart{i} = 0.0;\n");
                }
            }
        }
        text += "}\n";
    }
    for i in 0..g as u32 {
        text += &format!("weight[{}u + local] = s{i};\n", i * THREADS);
    }
    text + "workgroupBarrier();\n"
}

/// Turns scores into weights, with maximum and total of each head: `mostN`, `totalN`, and `keepN`, by which older sums
/// shrink. Each side of the workgroup takes every other head.
fn weights(s: &mut Source, a: &Attention, g: usize) -> String {
    let mut text = String::from("let part = at_position / lanes;\nlet parts = max(64u / lanes, 1u);\n");
    let pairs = g.div_ceil(2);
    let odd = |j: usize| g % 2 == 1 && j == pairs - 1;
    for j in 0..pairs {
        text += &format!("var mine{j} = -1e30;\nlet head{j} = {}u + side;\n", 2 * j);
        text += if odd(j) { "if side == 0u {\n" } else { "{\n" };
        let at = format!("head{j} * {THREADS}u + at_position");
        text += &format!("var v = weight[{at}] + weight[{at} + {PAGE}u];\n");
        if let Some(cap) = a.soft_cap {
            let tanh = chain::activation(s, Activation::Tanh);
            text += &format!("v = f32({cap:?}) * {tanh}(v / f32({cap:?}));\n");
        }
        text += &format!(
            "mine{j} = select(-1e30, v, seen);
let top = subgroupMax(mine{j});
if lane == 0u {{ most_of[head{j} * 16u + part] = top; }}
}}\n"
        );
    }
    text += "workgroupBarrier();\n";
    for i in 0..g {
        text += &format!("var next{i} = most{i};\n");
    }
    text += "for (var e = 0u; e < parts; e += 1u) {\n";
    for i in 0..g {
        text += &format!("next{i} = max(next{i}, most_of[{}u + e]);\n", i * 16);
    }
    text += "}\n";
    for i in 0..g {
        text += &format!("let keep{i} = exp(max(most{i} - next{i}, -80.0));\nmost{i} = next{i};\n");
    }
    for j in 0..pairs {
        let top = if odd(j) {
            format!("next{}", 2 * j)
        } else {
            format!("select(next{}, next{}, side == 1u)", 2 * j, 2 * j + 1)
        };
        text += if odd(j) { "if side == 0u {\n" } else { "{\n" };
        text += &format!(
            "let w = select(0.0, exp(max(mine{j} - {top}, -80.0)), seen);
weight[head{j} * {THREADS}u + at_position] = w;
let sum = subgroupAdd(w);
if lane == 0u {{ total_of[head{j} * 16u + part] = sum; }}
}}\n"
        );
    }
    text += "workgroupBarrier();\n";
    for i in 0..g {
        text += &format!("var fresh{i} = 0.0;\n");
    }
    text += "for (var e = 0u; e < parts; e += 1u) {\n";
    for i in 0..g {
        text += &format!("fresh{i} += total_of[{}u + e];\n", i * 16);
    }
    text += "}\n";
    for i in 0..g {
        text += &format!("total{i} = fma(total{i}, keep{i}, fresh{i});\n");
    }
    text
}

/// Weighted sums of values: who makes which.
struct Sums {
    /// Heads, numbers of a value, words of a value.
    heads: usize,
    dim: u32,
    words: u32,
    /// Words read at once, and numbers in a word.
    unit: u32,
    per_word: usize,
    /// Units that an invocation takes of a value.
    each: u32,
    /// Invocations beside one another that take all of a value.
    columns: u32,
    /// How many such, each with its share of a page's positions.
    groups: u32,
    /// Heads whose sums fit into workgroup memory together.
    at_once: u32,
}

impl Sums {
    fn new(bank: &Bank, heads: usize) -> Self {
        let ([_, words], unit) = (bank.row_words(), bank.value_unit());
        let units = words / unit;
        let each = units.div_ceil(THREADS);
        let columns = units.div_ceil(each);
        let groups = 1 << (THREADS / columns).ilog2().min(4);
        let padded = words * bank.per_word as u32;
        let at_once = (ROOM / 4 / (groups * padded)).clamp(1, heads as u32);
        Self {
            heads,
            dim: bank.layer.value_dim as u32,
            words,
            unit,
            per_word: bank.per_word,
            each,
            columns,
            groups,
            at_once,
        }
    }

    /// Numbers of a value, filled up to whole words.
    fn padded(&self) -> u32 {
        self.words * self.per_word as u32
    }

    fn share(&self, s: &mut Source) {
        s.shared("sum_of", &format!("array<f32, {}>", self.groups * self.at_once * self.padded()));
    }

    /// Names of an invocation's sums of a head, in order.
    fn names(&self, head: usize) -> Vec<String> {
        let numbers = self.each * self.unit * self.per_word as u32;
        (0..numbers).map(|n| format!("o{head}_{n}")).collect()
    }

    fn declare(&self) -> String {
        (0..self.heads).flat_map(|i| self.names(i)).map(|name| format!("var {name} = 0.0;\n")).collect()
    }

    fn scale(&self, head: usize, by: &str) -> String {
        self.names(head).iter().map(|name| format!("{name} *= {by};\n")).collect()
    }

    /// Adds a page's values.
    fn add(&self, bank: &Bank) -> String {
        let [_, value_page] = bank.page_words();
        let (unit, columns, groups) = (self.unit, self.columns, self.groups);
        let positions = PAGE / groups;
        let at_once = AT_ONCE.min(positions);
        let mut text = format!(
            "let value_at = (page * {value_page}u + kv_head * {head}u) / {unit}u;
let value_scales = page * {value_page}u + kv_head * {head}u + {codes}u;
let last = min({PAGE}u, end - at * {PAGE}u) - 1u;
let column = local % {columns}u;
let share = local / {columns}u;
if share < {groups}u {{
for (var j = 0u; j < {positions}u; j += {at_once}u) {{\n",
            head = bank.head_words()[1],
            codes = self.words * PAGE,
        );
        let units = self.words / unit;
        for j in 0..at_once {
            text += &format!(
                "let j{j} = share * {positions}u + j + {j}u;\nlet l{j} = min(j{j}, last);\nlet p{j} = l{j} * {units}u;\n"
            );
            for w in 0..self.each {
                let column = format!("min(column + {}u, {}u)", w * columns, units - 1);
                text += &format!("let v{j}_{w} = values[value_at + p{j} + {column}];\n");
                if bank.is_blocks() {
                    let block = format!("{column} / {UNITS}u");
                    let scale = scale_of("values", unit, &format!("value_scales + l{j}"), &block);
                    text += &format!("let d{j}_{w} = {scale};\n");
                }
            }
        }
        for j in 0..at_once {
            for i in 0..self.heads as u32 {
                text += &format!("let w{j}_{i} = weight[{}u + j{j}];\n", i * THREADS);
            }
            let mut n = 0;
            for w in 0..self.each {
                for i in 0..self.heads {
                    let scale = if bank.is_blocks() { format!(" * d{j}_{w}") } else { String::new() };
                    text += &format!("let w{j}_{i}_{w} = w{j}_{i}{scale};\n");
                }
                for c in 0..unit {
                    let name = format!("n{j}_{w}_{c}");
                    text += &numbers(&name, &format!("v{j}_{w}{}", component(unit, c)), self.per_word);
                    for h in 0..self.per_word {
                        for i in 0..self.heads {
                            text += &format!("o{i}_{n} = fma(w{j}_{i}_{w}, {name}_{h}, o{i}_{n});\n");
                        }
                        n += 1;
                    }
                }
            }
        }
        text + "}\n}\n"
    }

    /// Brings the sums of all invocations together: `each` is done with `value`, for `head` and number `d` of a value. It is
    /// given the name of a variable that is its own.
    fn gather(&self, each: impl Fn(&str) -> String) -> String {
        self.visit(true, each)
    }

    /// [`Self::gather`], or only its numbers in the same order.
    fn visit(&self, gather: bool, each: impl Fn(&str) -> String) -> String {
        let (padded, numbers) = (self.padded(), self.unit * self.per_word as u32);
        let mut text = format!("let column = local % {0}u;\nlet share = local / {0}u;\n", self.columns);
        for first in (0..self.heads as u32).step_by(self.at_once as usize) {
            let count = self.at_once.min(self.heads as u32 - first);
            text += &format!("workgroupBarrier();\nif share < {}u {{\n", self.groups);
            for i in (0..count).filter(|_| gather) {
                for (n, name) in self.names((first + i) as usize).iter().enumerate() {
                    let (w, c) = (n as u32 / numbers, n as u32 % numbers);
                    let column = format!("column + {}u", w * self.columns);
                    let at = format!(
                        "(share * {}u + {i}u) * {padded}u + ({column}) * {numbers}u + {c}u",
                        self.at_once
                    );
                    let guard = if self.each > 1 {
                        format!("if {column} < {}u ", self.words / self.unit)
                    } else {
                        String::new()
                    };
                    text += &format!("{guard}{{ sum_of[{at}] = {name}; }}\n");
                }
            }
            text += "}\nworkgroupBarrier();\n";
            let (len, dim) = (count * self.dim, self.dim);
            for round in 0..len.div_ceil(THREADS) {
                text += &format!(
                    "{{ let e = local + {}u;
if e < {len}u {{
let head = {first}u + e / {dim}u;
let d = e % {dim}u;
let source = e / {dim}u * {padded}u + d;
var value = 0.0;\n",
                    round * THREADS
                );
                for share in (0..self.groups).filter(|_| gather) {
                    text += &format!("value += sum_of[source + {}u];\n", share * self.at_once * padded);
                }
                text += &each(&format!("joined{first}_{round}"));
                text += "}\n}\n";
            }
        }
        text
    }

    /// Names of what an invocation holds of joined sums, as [`Self::gather`] gives them.
    fn joined(&self) -> Vec<String> {
        let heads = self.heads as u32;
        let rounds = |first: u32| ((heads - first).min(self.at_once) * self.dim).div_ceil(THREADS);
        let chunks = (0..heads).step_by(self.at_once as usize);
        chunks
            .flat_map(|first| (0..rounds(first)).map(move |round| format!("joined{first}_{round}")))
            .collect()
    }

    fn declare_joined(&self) -> String {
        let mut text: String = self.joined().iter().map(|name| format!("var {name} = 0.0;\n")).collect();
        for i in 0..self.heads {
            text += &format!("var all_most{i} = -1e30;\nvar all_total{i} = 0.0;\n");
        }
        text
    }

    /// Joins the run in hand to those before it.
    fn merge(&self) -> String {
        let mut text = String::new();
        for i in 0..self.heads {
            text += &format!(
                "{{ let next = max(all_most{i}, most{i});
let keep = exp(max(all_most{i} - next, -80.0));
let weight = exp(max(most{i} - next, -80.0));
all_most{i} = next;
all_total{i} = merge(all_total{i}, keep, total{i}, weight);
if local == 0u {{ most_of[{at}u] = keep; total_of[{at}u] = weight; }} }}\n",
                at = i * 16
            );
        }
        text + &self.gather(|name| {
            format!("{name} = merge({name}, most_of[head * 16u], value, total_of[head * 16u]);\n")
        })
    }

    /// Leaves a run's sums, maximum and total.
    fn store_run(&self, a: &Attention) -> String {
        let row = format!("(group.y * {}u + first_head", a.heads);
        let mut text = String::from("if local == 0u {\n");
        for i in 0..self.heads {
            text += &format!("stats[{row} + {i}u) * p.runs + group.z] = vec2<f32>(most{i}, total{i});\n");
        }
        text + "}\n"
            + &self.gather(|_| {
                format!("sums[({row} + head) * p.runs + group.z) * {}u + d] = value;\n", self.dim)
            })
    }

    /// Leaves the result.
    fn store(&self, a: &Attention, joined: bool, sinks: bool) -> String {
        let mut text = String::from("workgroupBarrier();\nif local == 0u {\n");
        let [total, most] = if joined { ["all_total", "all_most"] } else { ["total", "most"] };
        for i in 0..self.heads {
            let sink = sink(sinks, &format!("first_head + {i}u"), &format!("{most}{i}"));
            text += &format!("total_of[{}u] = {total}{i}{sink};\n", i * 16);
        }
        text += "}\n";
        text + &self.visit(!joined, |name| {
            let value = if joined { name } else { "value" };
            let at = format!("(group.y * {}u + first_head + head) * {}u + d", a.heads, self.dim);
            format!("sums[{at}] = {value} / total_of[head * 16u];\n")
        })
    }
}

/// Invocations of [`join`].
const JOINERS: u32 = 256;

/// Joins runs. Bindings: step rows, sums and stats of [`attend`], y or, as `codes`, what [`super::quantize`] makes of it and
/// its scales, and sinks if there are any. `in_turn`: run after run, so that [`Runs::InTurn`] does the same. Words: `runs`. Grid: heads, rows.
pub fn join(a: &Attention, bank: &Bank, codes: bool, in_turn: bool, sinks: bool) -> Shader {
    let mut s = Source::new("attention_join", JOINERS);
    let dim = bank.layer.value_dim as u32;
    let unit = if dim.is_multiple_of(4) { 4 } else { 1 };
    let (ty, zero) = if unit == 4 { ("vec4<f32>", "vec4<f32>(0.0)") } else { ("f32", "0.0") };
    s.read("step", "vec4<u32>");
    s.read("sums", ty);
    s.read("stats", "vec2<f32>");
    if codes {
        s.write("y", "vec4<u32>");
        s.write("ys", "vec2<f32>");
    } else {
        s.write("y", if bank.rotates() { "f32" } else { ty });
    }
    if sinks {
        s.read("sinks", "f32");
    }
    let result = format!("sum / (total{})", sink(sinks, "group.x", "most"));
    s.words("u32", &["runs"]);
    s.item(RUN_OF);
    s.shared("stat", &format!("array<vec2<f32>, {RUNS}>"));
    s.shared("weight", &format!("array<f32, {RUNS}>"));
    let columns = (dim / unit).min(JOINERS);
    let groups = 1 << (JOINERS / columns).ilog2().min(4);
    let mut body = format!(
        "let end = step[group.y].y + 1u;
let run = run_of(end) * {PAGE}u;
let first = ({begin}) / run;
let stop = (end + run - 1u) / run;
let base = (group.y * {heads}u + group.x) * p.runs;
if local >= first && local < stop {{ stat[local] = stats[base + local]; }}
workgroupBarrier();
let column = local % {columns}u;
let share = local / {columns}u;\n",
        begin = begin(a),
        heads = a.heads,
    );
    let units = dim / unit;
    let end = match (bank.rotates(), codes) {
        (true, _) => {
            s.shared("turned", &format!("array<f32, {dim}>"));
            let back = kv_blocks::rotate("turned", dim as usize, JOINERS);
            let end = if codes { codes_end(&mut s, a, dim, true) } else { turned_end(a, dim) };
            format!("workgroupBarrier();\n{back}{end}")
        }
        (false, true) => codes_end(&mut s, a, dim, false),
        (false, false) => String::new(),
    };
    let store = |value: &str| match codes || bank.rotates() {
        true if bank.rotates() && unit == 1 => format!("turned[c] = {value};\n"),
        true if bank.rotates() => {
            let each = |i: usize| format!("turned[c * 4u + {i}u] = back[{i}];\n");
            format!("let back = {value};\n{}", (0..4).map(each).collect::<String>())
        }
        true => format!("result[c] = {value};\n"),
        false => format!("y[(group.y * {}u + group.x) * {units}u + c] = {value};\n", a.heads),
    };
    if in_turn {
        s.item(MERGE);
        let merged: Vec<_> = match unit {
            1 => vec!["merge(sum, keep, more, stat_weight)".to_string()],
            _ => (0..4).map(|c| format!("merge(sum[{c}], keep, more[{c}], stat_weight)")).collect(),
        };
        body += &format!(
            "for (var c = local; c < {units}u; c += {JOINERS}u) {{
var most = -1e30;
var total = 0.0;
var sum = {zero};
for (var r = first; r < stop; r += 1u) {{
let next = max(most, stat[r].x);
let keep = exp(max(most - next, -80.0));
let stat_weight = exp(max(stat[r].x - next, -80.0));
most = next;
total = merge(total, keep, stat[r].y, stat_weight);
let more = sums[(base + r) * {units}u + c];
sum = {ty}({merged});
}}
{store}}}\n{end}",
            merged = merged.join(", "),
            store = store(&result),
        );
        return s.build(&body);
    }
    s.shared("share_of", &format!("array<{ty}, {}>", groups * columns));
    body += &format!(
        "var most = -1e30;
for (var r = first; r < stop; r += 1u) {{ most = max(most, stat[r].x); }}
if local >= first && local < stop {{ weight[local] = exp(max(stat[local].x - most, -80.0)); }}
workgroupBarrier();
var total = 0.0;
for (var r = first; r < stop; r += 1u) {{ total += weight[r] * stat[r].y; }}
for (var c = column; c < {units}u; c += {columns}u) {{
var sum = {zero};
if share < {groups}u {{
for (var r = first + share; r < stop; r += {}u) {{\n",
        groups * 4
    );
    for i in 0..4 {
        body += &format!(
            "let r{i} = r + {}u;\nlet v{i} = sums[(base + min(r{i}, stop - 1u)) * {units}u + c];
let w{i} = select(0.0, weight[min(r{i}, {RUNS}u - 1u)], r{i} < stop);\n",
            i * groups
        );
    }
    body += "sum += v0 * w0;\nsum += v1 * w1;\nsum += v2 * w2;\nsum += v3 * w3;\n}\n";
    body += "share_of[local] = sum;\n}\nworkgroupBarrier();\nif share == 0u {\n";
    for share in 1..groups {
        body += &format!("sum += share_of[column + {}u];\n", share * columns);
    }
    body += &store(&result);
    body += "}\nworkgroupBarrier();\n}\n";
    s.build(&(body + &end))
}

/// Stores the result, turned back in workgroup memory.
fn turned_end(a: &Attention, dim: u32) -> String {
    format!(
        "for (var i = local; i < {dim}u; i += {JOINERS}u) {{
y[(group.y * {}u + group.x) * {dim}u + i] = turned[i];
}}\n",
        a.heads
    )
}

/// Rounds the result, which is in workgroup memory then, or was turned back there.
fn codes_end(s: &mut Source, a: &Attention, dim: u32, turned: bool) -> String {
    s.item(quantize::LARGEST);
    if turned {
        s.item("fn result_at(i: u32) -> vec4<f32> { let t = i * 4u; return vec4<f32>(turned[t], turned[t + 1u], turned[t + 2u], turned[t + 3u]); }");
    } else {
        s.shared("result", &format!("array<vec4<f32>, {}>", dim / 4));
        s.item("fn result_at(i: u32) -> vec4<f32> { return result[i]; }");
    }
    let mut end = format!("workgroupBarrier();\nif local < {}u {{\nlet other = local ^ 1u;\n", dim / 16);
    for j in 0..4 {
        end +=
            &format!("let v{j} = result_at(local * 4u + {j}u);\nlet o{j} = result_at(other * 4u + {j}u);\n");
    }
    end += quantize::CODES;
    end + &format!(
        "let at = (group.y * {}u + group.x) * {}u + local;\ny[at] = codes;\nys[at] = scaled;\n}}\n",
        a.heads,
        dim / 16
    )
}
