//! Attention of rows that are alone in their sequence: tokens of generation, all in one call.
//!
//! Such a row sees what earlier steps left in the bank, and itself, so nothing in the step waits for what it writes there. A
//! workgroup takes one row, one head of keys with some heads of queries, and a run of pages. The row's own key and value
//! come from the workgroup itself; that of the last run writes them into the bank. Few runs are joined by the workgroup that is done
//! last, in an order that does not depend on which that is; many by [`super::join`].

use super::{AT_ONCE, Heads, RUN_OF, RUNS, begin, component, declare_sinks, sink, words};
use crate::{
    kernels::{
        chain,
        kv::{Bank, PAGE, Turn, declare, turned},
        quantize,
    },
    shader::{Shader, Source},
};
use nibble_graph::{Activation, Attention, KvLayer};

mod ends;
mod stage;

/// Heads of queries in a workgroup: those whose weights make a vector.
const GROUP: usize = 4;

/// Invocations of a workgroup.
const THREADS: u32 = 128;

/// What a kernel is made for.
#[derive(Clone, Copy, Debug)]
pub struct Alone<'a> {
    /// The op.
    pub op: &'a Attention,
    /// The bank.
    pub bank: &'a Bank,
    /// How queries and keys turn.
    pub turn: Option<&'a Turn>,
    /// Whether the workgroup that is done last joins runs; otherwise [`super::join`] follows.
    pub joins: bool,
    /// Whether a joined result is left as [`quantize`] makes it.
    pub codes: bool,
    /// Whether heads have sinks.
    pub sinks: bool,
}

/// The division of heads.
pub fn heads(a: &Attention, bank: &Bank) -> Heads {
    Heads::of(a, bank, GROUP)
}

/// Whether there is a kernel for such a bank with so many bytes of workgroup memory: numbers come in whole vectors of four.
pub fn fits(a: &Attention, bank: &Bank, workgroup: u32) -> bool {
    let fours = |unit: u32| (unit as usize * bank.per_word).is_multiple_of(4);
    let units = [bank.row_words()[0] / bank.unit(), bank.row_words()[1] / bank.value_unit()];
    if bank.is_blocks() || !fours(bank.unit()) || !fours(bank.value_unit()) {
        return false;
    }
    let g = heads(a, bank).group as u32;
    let KvLayer { key_dim, value_dim, .. } = bank.layer;
    let few = units[0].is_multiple_of(2) && units[1] <= THREADS;
    // Sums on their way, queries and results, the row itself, scores, weights, what is small.
    let room = 4 * g * value_dim as u32 * (THREADS / units[1].max(1)).clamp(1, PAGE);
    let bytes = room + 4 * (g + 1) * (key_dim + value_dim) as u32 + 4 * g * 4 * PAGE + 16 * PAGE + 2048;
    few && bytes <= workgroup
}

/// How an invocation shares in a page.
struct Shape {
    /// Heads of queries.
    g: u32,
    /// Invocations beside one another that score the same position, and how many units of a key each takes.
    sides: u32,
    each: u32,
    /// Positions that an invocation scores, and how far they are apart.
    positions: u32,
    apart: u32,
    /// Units of a value, which lie side by side; shares of a page's positions; positions in one.
    columns: u32,
    shares: u32,
    rounds: u32,
    /// Workgroups along x.
    across: u32,
    /// Fours of numbers in a unit of a key, of a value.
    fours: [u32; 2],
}

impl Shape {
    fn new(k: &Alone<'_>) -> Self {
        let bank = k.bank;
        let units = bank.row_words()[0] / bank.unit();
        let sides = if units.is_multiple_of(4) { 4 } else { 2 };
        let columns = bank.row_words()[1] / bank.value_unit();
        let shares = 1 << (THREADS / columns).ilog2().min(PAGE.ilog2());
        Self {
            g: heads(k.op, bank).group as u32,
            sides,
            each: units / sides,
            positions: PAGE * sides / THREADS,
            apart: THREADS / sides,
            columns,
            shares,
            rounds: PAGE / shares,
            across: (bank.layer.kv_heads * heads(k.op, bank).groups) as u32,
            fours: [bank.unit(), bank.value_unit()].map(|unit| unit * bank.per_word as u32 / 4),
        }
    }

    /// Units of a key that an invocation holds at once.
    fn held_units(&self) -> u32 {
        (AT_ONCE / self.positions).min(self.each)
    }

    /// Values that it holds at once.
    fn held_values(&self) -> u32 {
        AT_ONCE.min(self.rounds)
    }

    /// Names of sums, by head and four.
    fn sums(&self) -> impl Iterator<Item = (u32, u32, String)> {
        let fours = self.fours[1];
        (0..self.g).flat_map(move |i| (0..fours).map(move |f| (i, f, format!("o{i}_{f}"))))
    }
}

/// Bindings: step rows, sequences, pages, k, v, keys, values, with a turn its table and weights of the norms of q and k, q, sums
/// (`[rows, heads, runs, value_dim]`) and maximum with total (`[rows, heads, runs]`) of runs, and if these are joined, counts of runs
/// that are done (a zero for each row and workgroup along x, left as it was), y or its codes and scales, and sinks. Words: `runs`.
/// Grid: kv heads * groups, rows, runs.
pub fn attend(k: &Alone<'_>) -> Shader {
    let (a, bank) = (k.op, k.bank);
    let layer = bank.layer;
    let (heads, shape) = (heads(a, bank), Shape::new(k));
    let g = heads.group;
    let mut s = Source::new("attention_alone", THREADS);
    s.subgroups();
    let prepare = declare(&mut s, k.turn, [words(bank.unit()), words(bank.value_unit())]);
    s.read("q", "f32");
    if k.joins {
        s.coherent("sums", "vec4<f32>");
        s.coherent("stats", "vec2<f32>");
        s.write("done", "atomic<u32>");
        if k.codes {
            s.write("y", "vec4<u32>");
            s.write("ys", "vec2<f32>");
        } else {
            s.write("y", "vec4<f32>");
        }
        if k.sinks {
            declare_sinks(&mut s);
        }
    } else {
        s.write("sums", "vec4<f32>");
        s.write("stats", "vec2<f32>");
    }
    s.words("u32", &["runs"]);
    s.item(RUN_OF);
    for name in ["k", "q"] {
        match k.turn {
            Some(turn) => s.item(&turned(name, turn)),
            None => {
                s.item(&format!("fn turned_{name}(base: u32, d: u32) -> f32 {{ return {name}[base + d]; }}"))
            }
        }
    }
    s.item("fn plain_v(base: u32, d: u32) -> f32 { return v[base + d]; }");
    s.item(
        "fn more(a: vec4<f32>, b: vec4<f32>, s: f32) -> f32 \
         { return fma(a.x, b.x, fma(a.y, b.y, fma(a.z, b.z, fma(a.w, b.w, s)))); }",
    );
    s.shared("query", "vec4<f32>", g * layer.key_dim / 4);
    s.shared("own_key", words(bank.unit()), (bank.row_words()[0] / bank.unit()) as usize);
    s.shared("own_value", words(bank.value_unit()), shape.columns as usize);
    s.shared("part", "f32", (shape.g * shape.sides * PAGE) as usize);
    s.shared("weight", "vec4<f32>", PAGE as usize);
    s.shared("keep_of", "vec4<f32>", 1);
    s.shared("most_of", "f32", g);
    s.shared("total_of", "f32", g);
    let mut body = format!(
        "let place = step[group.y];
{prepare}let kv_head = group.x / {groups}u;
let first_head = kv_head * {shared}u + group.x % {groups}u * {g}u;
let own = place.y;
let end = own + 1u;
let begin = {begin};
let table = place.w;
let own_page = own / {PAGE}u;
let own_at = own % {PAGE}u;
let run = run_of(end);
let first_page = max(begin / {PAGE}u, group.z * run);
let end_page = min(own_page + 1u, (group.z + 1u) * run);
if first_page >= end_page {{ return; }}
let is_last = end_page > own_page;
let side = local / {apart}u;
let at_position = local % {apart}u;
let column = local % {columns}u;
let share = local / {columns}u;
var page = pages[table + first_page];
var next_page = pages[table + min(first_page + 1u, own_page)];\n",
        groups = heads.groups,
        shared = heads.shared,
        begin = begin(a),
        apart = shape.apart,
        columns = shape.columns,
    );
    for p in 0..shape.positions {
        (0..shape.held_units()).for_each(|u| body += &format!("var k{p}_{u}: {};\n", words(bank.unit())));
    }
    (0..shape.held_values()).for_each(|j| body += &format!("var v{j}: {};\n", words(bank.value_unit())));
    body += &load_keys(bank, &shape, "page", 0);
    // Where there are few runs, values are asked for at once; else the fewer registers the better.
    if k.joins {
        body += &load_values(bank, &shape, "page", "first_page", 0);
    }
    body += &stage::stage(&mut s, k, &shape);
    shape.sums().for_each(|(.., name)| body += &format!("var {name} = vec4<f32>(0.0);\n"));
    body += &format!("for (var at = first_page; at < end_page; at += 1u) {{\n{}", scores(bank, &shape));
    if !k.joins {
        body += &load_values(bank, &shape, "page", "at", 0);
    }
    body += &weights(&mut s, a, &shape);
    body += &values(bank, &shape);
    let (keys, values) =
        (load_keys(bank, &shape, "page", 0), load_values(bank, &shape, "page", "(at + 1u)", 0));
    body += &format!(
        "if at + 1u < end_page {{
page = next_page;
next_page = pages[table + min(at + 2u, own_page)];
{keys}{}}}\n}}\n",
        if k.joins { &values } else { "" }
    );
    body += &ends::finish(&mut s, k, &shape);
    s.build(&body)
}

/// Asks for units from `first` on of the keys that the invocation scores.
fn load_keys(bank: &Bank, shape: &Shape, page: &str, first: u32) -> String {
    let (unit, words, head) = (bank.unit(), bank.page_words()[0], bank.head_words()[0]);
    let mut text =
        format!("{{ let key_at = ({page} * {words}u + kv_head * {head}u) / {unit}u + at_position;\n");
    for u in 0..shape.held_units().min(shape.each - first) {
        for p in 0..shape.positions {
            text += &format!(
                "k{p}_{u} = keys[key_at + (side * {}u + {}u) * {PAGE}u + {}u];\n",
                shape.each,
                first + u,
                p * shape.apart
            );
        }
    }
    text + "}\n"
}

/// Asks for values of the invocation's share from round `first` on. Those behind the row itself may be anything.
fn load_values(bank: &Bank, shape: &Shape, page: &str, at: &str, first: u32) -> String {
    let (unit, words, head) = (bank.value_unit(), bank.page_words()[1], bank.head_words()[1]);
    let mut text = format!(
        "{{ let value_at = ({page} * {words}u + kv_head * {head}u) / {unit}u + column;
let last = min({PAGE}u - 1u, own - {at} * {PAGE}u);\n"
    );
    for j in 0..shape.held_values() {
        text += &format!(
            "v{j} = values[value_at + min(share + {}u, last) * {}u];\n",
            (first + j) * shape.shares,
            shape.columns
        );
    }
    text + "}\n"
}

/// Leaves in `part` for each head and side its share of the score of each position.
fn scores(bank: &Bank, shape: &Shape) -> String {
    let (held, [fours, _]) = (shape.held_units(), shape.fours);
    let units = shape.each * shape.sides;
    let mut text = String::from("let is_own = at == own_page;\n");
    for i in 0..shape.g {
        (0..shape.positions).for_each(|p| text += &format!("var s{i}_{p} = 0.0;\n"));
    }
    for first in (0..shape.each).step_by(held as usize) {
        let count = held.min(shape.each - first);
        if first > 0 {
            text += &load_keys(bank, shape, "page", first);
        }
        text += "if is_own {\n";
        for p in 0..shape.positions {
            text += &format!("if at_position + {}u == own_at {{\n", p * shape.apart);
            for u in 0..count {
                text += &format!("k{p}_{u} = own_key[side * {}u + {}u];\n", shape.each, first + u);
            }
            text += "}\n";
        }
        text += "}\n{\n";
        let query_at = format!("side * {}u + {}u", shape.each * fours, first * fours);
        text += &format!("let query_at = {query_at};\n");
        for (u, f) in (0..count).flat_map(|u| (0..fours).map(move |f| (u, f))) {
            for i in 0..shape.g {
                text += &format!(
                    "let q{u}_{f}_{i} = query[query_at + {}u];\n",
                    i * units * fours + u * fours + f
                );
            }
            for p in 0..shape.positions {
                text += &format!(
                    "let n{p}_{u}_{f} = {};\n",
                    numbers_of(&format!("k{p}_{u}"), bank.unit(), bank.per_word, f)
                );
                for i in 0..shape.g {
                    text += &format!("s{i}_{p} = more(n{p}_{u}_{f}, q{u}_{f}_{i}, s{i}_{p});\n");
                }
            }
        }
        text += "}\n";
    }
    for (i, p) in (0..shape.g).flat_map(|i| (0..shape.positions).map(move |p| (i, p))) {
        text += &format!(
            "part[({}u + side) * {PAGE}u + at_position + {}u] = s{i}_{p};\n",
            i * shape.sides,
            p * shape.apart
        );
    }
    text + "workgroupBarrier();\n"
}

/// Turns scores into weights, a subgroup a head; by `keep_of` older sums shrink.
fn weights(s: &mut Source, a: &Attention, shape: &Shape) -> String {
    let (g, sides) = (shape.g, shape.sides);
    let parts: Vec<_> = (0..sides).map(|side| format!("part[first + {}u]", side * PAGE)).collect();
    let capped = match a.soft_cap {
        None => String::new(),
        Some(cap) => {
            let tanh = chain::activation(s, Activation::Tanh);
            format!("score = f32({cap:?}) * {tanh}(score / f32({cap:?}));\n")
        }
    };
    format!(
        "for (var i = sub; i < {g}u; i += subs) {{
let before = most_of[i];
var top = before;
for (var j = lane; j < {PAGE}u; j += lanes) {{
let first = i * {all}u + j;
var score = {parts};
{capped}let position = at * {PAGE}u + j;
score = select(-1e30, score, position >= begin && position < end);
part[first] = score;
top = max(top, score);
}}
let next = subgroupMax(top);
let keep = exp(before - next);
var sum = 0.0;
for (var j = lane; j < {PAGE}u; j += lanes) {{
let score = part[i * {all}u + j];
let position = at * {PAGE}u + j;
let w = select(0.0, exp(score - next), position >= begin && position < end);
weight[j][i] = w;
sum += w;
}}
let fresh = subgroupAdd(sum);
if lane == 0u {{ most_of[i] = next; total_of[i] = fma(total_of[i], keep, fresh); keep_of[0][i] = keep; }}
}}
workgroupBarrier();\n",
        all = sides * PAGE,
        parts = parts.join(" + "),
    )
}

/// Adds weighted values.
fn values(bank: &Bank, shape: &Shape) -> String {
    let (held, [_, fours]) = (shape.held_values(), shape.fours);
    let mut text = String::from("let keep = keep_of[0];\n");
    for (i, _, name) in shape.sums() {
        text += &format!("{name} *= keep{};\n", component(4, i));
    }
    for first in (0..shape.rounds).step_by(held as usize) {
        if first > 0 {
            text += &load_values(bank, shape, "page", "at", first);
        }
        text += "if is_own {\n";
        for j in 0..held {
            let place = (first + j) * shape.shares;
            text += &format!("if share + {place}u >= own_at {{ v{j} = own_value[column]; }}\n");
        }
        text += "}\n{\n";
        for j in 0..held {
            text += &format!(
                "let w{j} = weight[min(share, {}u) + {}u];\n",
                shape.shares - 1,
                (first + j) * shape.shares
            );
            for f in 0..fours {
                text += &format!(
                    "let n{j}_{f} = {};\n",
                    numbers_of(&format!("v{j}"), bank.value_unit(), bank.per_word, f)
                );
                for i in 0..shape.g {
                    let w = component(4, i);
                    text += &format!("o{i}_{f} = fma(vec4<f32>(w{j}{w}), n{j}_{f}, o{i}_{f});\n");
                }
            }
        }
        text += "}\n";
    }
    text
}

/// Four numbers, the so-manieth, of a vector `v` of `unit` words.
fn numbers_of(v: &str, unit: u32, per_word: usize, four: u32) -> String {
    if per_word == 1 {
        return format!("bitcast<vec4<f32>>({v})");
    }
    let [a, b] = [0, 1].map(|i| component(unit, 2 * four + i));
    format!("vec4<f32>(unpack2x16float({v}{a}), unpack2x16float({v}{b}))")
}
