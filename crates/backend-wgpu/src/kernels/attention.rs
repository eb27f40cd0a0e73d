//! Causal attention of rows over the bank, split by runs of pages.
//!
//! A workgroup takes one row, one head of keys with up to [`GROUP`] heads of queries, and a run of pages. Page by page, two
//! invocations score a position; then each sums some numbers of some values, all of them read at once. What the runs yield
//! is joined by a second kernel. How a sequence is cut into runs depends on the row's position alone, so the result does
//! not depend on how rows are put into steps.

pub mod alone;
mod join;
mod sums;
pub mod tiles;

pub use join::join;

use super::{
    chain,
    kv::{Bank, PAGE},
    kv_blocks::BLOCK,
};
use crate::shader::{Shader, Source};
use nibble_graph::{Activation, Attention};
use sums::Sums;

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
        Self::of(a, bank, GROUP)
    }

    /// The division for an op, with `most` heads at most in a workgroup.
    fn of(a: &Attention, bank: &Bank, most: usize) -> Self {
        let shared = a.heads / bank.layer.kv_heads;
        let group = (1..=most.min(shared)).rev().find(|&g| shared.is_multiple_of(g)).unwrap_or(1);
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

/// `run_of(end)`: pages in a run of a sequence that ends before `end`. Kernels are given [`RUNS`], or the pages of the longest
/// sequence if these are fewer, so it depends on the sequence alone.
const RUN_OF: &str = "fn run_of(end: u32) -> u32 { return ((end + 63u) / 64u + p.runs - 1u) / p.runs; }";

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
        declare_sinks(&mut s);
    }
    s.words("u32", &["runs"]);
    s.item(RUN_OF);
    let (g, key_dim) = (heads.group, bank.layer.key_dim);
    let padded = bank.padded()[0] as u32;
    s.shared("query", "f32", (g as u32 * padded) as usize);
    s.shared("weight", "f32", (g as u32 * THREADS) as usize);
    s.shared("most_of", "f32", g * 16);
    s.shared("total_of", "f32", g * 16);
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

/// Declares the sinks.
fn declare_sinks(s: &mut Source) {
    s.read("sinks", "f32");
    s.item(chain::NO_NUMBER);
    s.item(
        "fn sink_of(head: u32, most: f32) -> f32 {
let sink = sinks[head];
return select(exp(clamp(sink - most, -80.0, 80.0)), sink, no_number(sink));
}",
    );
}

/// What a sink adds to a total of weights relative to the score `most`; nothing without sinks.
pub fn sink(sinks: bool, head: &str, most: &str) -> String {
    if !sinks {
        return String::new();
    }
    format!(" + sink_of({head}, {most})")
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
        text += &format!("let keep{i} = exp(most{i} - next{i});\nmost{i} = next{i};\n");
    }
    for j in 0..pairs {
        let top = if odd(j) {
            format!("next{}", 2 * j)
        } else {
            format!("select(next{}, next{}, side == 1u)", 2 * j, 2 * j + 1)
        };
        text += if odd(j) { "if side == 0u {\n" } else { "{\n" };
        text += &format!(
            "let w = select(0.0, exp(mine{j} - {top}), seen);
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
