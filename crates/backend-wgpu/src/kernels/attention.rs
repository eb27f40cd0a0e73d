//! Causal attention over the bank, split by runs of pages.
//!
//! A workgroup takes one row, one head of keys with up to [`GROUP`] heads of queries, and a run of pages. Page by page, each
//! invocation scores one position; then each sums some numbers of the values over the page. What a run yields is joined
//! by a second kernel, so the result does not depend on how rows are put into steps.

use super::{
    chain,
    kv::{Bank, PAGE},
    quantize,
};
use crate::shader::{Shader, Source};
use nibble_graph::{Activation, Attention};

/// Heads of queries in a workgroup.
pub const GROUP: usize = 8;

/// Pages in a run.
pub const RUN: usize = 4;

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

/// Numbers that a run leaves for each head: the sums, then maximum and total.
pub fn part_len(bank: &Bank) -> usize {
    bank.layer.value_dim + 2
}

/// Bindings: step rows, sequences, pages, q, keys, values, parts (`[rows, heads, runs, value_dim + 2]`) or, if one run
/// takes the whole sequence, the result. Words: `runs`. Grid: kv heads * groups, rows, runs.
pub fn attend(a: &Attention, bank: &Bank, whole: bool) -> Shader {
    let heads = Heads::new(a, bank);
    let mut s = Source::new("attention", PAGE);
    s.read("step", "vec4<u32>");
    s.read("sequences", "vec4<u32>");
    s.read("pages", "u32");
    s.read("q", "f32");
    let unit = bank.unit();
    let element = ["", "u32", "vec2<u32>", "", "vec4<u32>"][unit as usize];
    s.read("keys", element);
    s.read("values", "u32");
    s.write("parts", "f32");
    s.words("u32", &["runs"]);
    let layer = bank.layer;
    let (key_dim, value_dim, g) = (layer.key_dim, layer.value_dim, heads.group);
    let ([key, value], [key_page, value_page]) = (bank.row_words(), bank.page_words());
    let per_word = bank.per_word as u32;
    let padded = key * per_word;
    s.shared("query", &format!("array<f32, {}>", g as u32 * padded));
    s.shared("weight", &format!("array<f32, {}>", g as u32 * PAGE));
    s.shared("reduce", &format!("array<f32, {}>", g as u32 * PAGE));

    // Words of a value that one invocation sums.
    let each = value.div_ceil(PAGE);
    let mut body = format!(
        "let place = step[group.y];
let kv_head = group.x / {groups}u;
let first_head = kv_head * {shared}u + group.x % {groups}u * {g}u;
let end = place.y + 1u;
let begin = {begin};
let first_page = max(begin / {PAGE}u, group.z * {run}u);
let end_page = min((end + {PAGE}u - 1u) / {PAGE}u, (group.z + 1u) * {run}u);
if first_page >= end_page {{ return; }}
let table = sequences[place.z * 2u].x;
for (var i = local; i < {query_len}u; i += {PAGE}u) {{
let d = i % {padded}u;
let at = (group.y * {all_heads}u + first_head + i / {padded}u) * {key_dim}u + min(d, {key_dim}u - 1u);
query[i] = select(0.0, q[at] * {scale:?}, d < {key_dim}u);
}}
workgroupBarrier();\n",
        groups = heads.groups,
        shared = heads.shared,
        run = if whole { 1 << 20 } else { RUN },
        begin = a.window.map_or("0u".into(), |w| format!("select(0u, end - {w}u, end > {w}u)")),
        query_len = g as u32 * padded,
        all_heads = a.heads,
        scale = a.scale,
    );
    for i in 0..g {
        body += &format!("var most{i} = -1e30;\nvar total{i} = 0.0;\n");
        for w in 0..each {
            for c in 0..per_word {
                body += &format!("var o{i}_{w}_{c} = 0.0;\n");
            }
        }
    }
    body += &format!(
        "for (var at = first_page; at < end_page; at += 1u) {{
let page = pages[table + at];
let position = at * {PAGE}u + local;
let seen = position >= begin && position < end;
let key_at = (page * {key_page}u + kv_head * {head_keys}u) / {unit}u + local;\n",
        head_keys = key * PAGE,
    );
    body += &scores(&mut s, a, bank, g);
    // The largest score of the page, per head.
    let mut width = PAGE / 2;
    while width > 0 {
        body += &format!("workgroupBarrier();\nif local < {width}u {{\n");
        for i in 0..g {
            let at = |o: &str| format!("reduce[{}u + local{o}]", i as u32 * PAGE);
            body += &format!("{0} = max({0}, {1});\n", at(""), at(&format!(" + {width}u")));
        }
        body += "}\n";
        width /= 2;
    }
    body += "workgroupBarrier();\n";
    for i in 0..g {
        let base = i as u32 * PAGE;
        body += &format!(
            "let next{i} = max(most{i}, reduce[{base}u]);
let keep{i} = exp(max(most{i} - next{i}, -80.0));
most{i} = next{i};
weight[{base}u + local] = select(0.0, exp(max(s{i} - next{i}, -80.0)), seen);
total{i} = total{i} * keep{i};\n"
        );
        for w in 0..each {
            for c in 0..per_word {
                body += &format!("o{i}_{w}_{c} *= keep{i};\n");
            }
        }
    }
    body += &format!(
        "workgroupBarrier();
let value_at = page * {value_page}u + kv_head * {head_values}u;
let count = min({PAGE}u, end - at * {PAGE}u);
for (var j = 0u; j < count; j += 1u) {{\n",
        head_values = value * PAGE,
    );
    for w in 0..each {
        body += &format!(
            "let v{w} = values[value_at + j * {value}u + min(local + {}u, {value}u - 1u)];\n",
            w * PAGE
        );
        body += &numbers(&format!("v{w}"), per_word);
    }
    for i in 0..g {
        body += &format!("let w{i} = weight[{}u + j];\ntotal{i} += w{i};\n", i as u32 * PAGE);
        for w in 0..each {
            for c in 0..per_word {
                body += &format!("o{i}_{w}_{c} += w{i} * v{w}_{c};\n");
            }
        }
    }
    body += "}\nworkgroupBarrier();\n}\n";
    let len = part_len(bank);
    for i in 0..g {
        let head = format!("(group.y * {}u + first_head + {i}u)", a.heads);
        if whole {
            body += &format!("let at{i} = {head} * {value_dim}u;\nlet scale{i} = 1.0 / total{i};\n");
        } else {
            body += &format!(
                "let at{i} = ({head} * p.runs + group.z) * {len}u;\nlet scale{i} = 1.0;
if local == 0u {{ parts[at{i} + {value_dim}u] = most{i}; parts[at{i} + {value_dim}u + 1u] = total{i}; }}\n"
            );
        }
        for w in 0..each {
            for c in 0..per_word {
                let d = format!("(local + {}u) * {per_word}u + {c}u", w * PAGE);
                body +=
                    &format!("if {d} < {value_dim}u {{ parts[at{i} + {d}] = o{i}_{w}_{c} * scale{i}; }}\n");
            }
        }
    }
    s.build(&body)
}

/// `{v}_0`, `{v}_1`: the numbers of a word.
fn numbers(v: &str, per_word: u32) -> String {
    if per_word == 1 {
        return format!("let {v}_0 = bitcast<f32>({v});\n");
    }
    format!("let {v}_p = unpack2x16float({v});\nlet {v}_0 = {v}_p.x;\nlet {v}_1 = {v}_p.y;\n")
}

/// Scores of this invocation's position: `s0`, `s1`, .. and in `reduce`.
fn scores(s: &mut Source, a: &Attention, bank: &Bank, g: usize) -> String {
    let (unit, per_word) = (bank.unit(), bank.per_word as u32);
    let [key, _] = bank.row_words();
    let padded = key * per_word;
    let mut text = String::new();
    for i in 0..g {
        text += &format!("var s{i} = 0.0;\n");
    }
    text += &format!(
        "for (var u = 0u; u < {}u; u += 1u) {{\nlet word = keys[key_at + u * {PAGE}u];\n",
        key / unit
    );
    for w in 0..unit {
        let component =
            if unit == 1 { String::new() } else { format!(".{}", ["x", "y", "z", "w"][w as usize]) };
        text += &format!("let k{w} = word{component};\n");
        text += &numbers(&format!("k{w}"), per_word);
        for i in 0..g as u32 {
            for c in 0..per_word {
                let at = format!("{}u + u * {}u", i * padded + w * per_word + c, unit * per_word);
                text += &format!("s{i} += k{w}_{c} * query[{at}];\n");
            }
        }
    }
    text += "}\n";
    for i in 0..g {
        if let Some(cap) = a.soft_cap {
            let tanh = chain::activation(s, Activation::Tanh);
            text += &format!("s{i} = f32({cap:?}) * {tanh}(s{i} / f32({cap:?}));\n");
        }
        text += &format!("reduce[{}u + local] = select(-1e30, s{i}, seen);\n", i as u32 * PAGE);
    }
    text
}

/// Joins runs. Bindings: step rows, parts, y or, as `codes`, what [`super::quantize`] makes of it and its scales.
/// Words: `runs`. Grid: heads, rows.
pub fn join(a: &Attention, bank: &Bank, codes: bool) -> Shader {
    let mut s = Source::new("attention_join", 64);
    s.read("step", "vec4<u32>");
    s.read("parts", "f32");
    let dim = bank.layer.value_dim;
    let (store, end) = if codes {
        s.write("y", "vec4<u32>");
        s.write("ys", "vec2<f32>");
        s.item(quantize::LARGEST);
        s.shared("joined", &format!("array<vec4<f32>, {}>", dim / 4));
        let mut end = format!("workgroupBarrier();\nif local < {}u {{\nlet other = local ^ 1u;\n", dim / 16);
        for j in 0..4 {
            end += &format!("let v{j} = joined[local * 4u + {j}u];\nlet o{j} = joined[other * 4u + {j}u];\n");
        }
        end += quantize::CODES;
        end += &format!("let at = (group.y * {}u + group.x) * {}u + local;\n", a.heads, dim / 16);
        ("joined[d / 4u][d % 4u] = sum / total;".to_string(), end + "y[at] = codes;\nys[at] = scaled;\n}\n")
    } else {
        s.write("y", "f32");
        (format!("y[(group.y * {}u + group.x) * {dim}u + d] = sum / total;", a.heads), String::new())
    };
    s.words("u32", &["runs"]);
    let (len, dim) = (part_len(bank), bank.layer.value_dim);
    let run = RUN as u32 * PAGE;
    s.build(&format!(
        "let end = step[group.y].y + 1u;
let first = ({begin}) / {run}u;
let stop = (end + {run}u - 1u) / {run}u;
let base = (group.y * {heads}u + group.x) * p.runs * {len}u;
var most = -1e30;
for (var r = first; r < stop; r += 1u) {{ most = max(most, parts[base + r * {len}u + {dim}u]); }}
var total = 0.0;
for (var r = first; r < stop; r += 1u) {{
let at = base + r * {len}u + {dim}u;
total += parts[at + 1u] * exp(max(parts[at] - most, -80.0));
}}
for (var d = local; d < {dim}u; d += 64u) {{
var sum = 0.0;
for (var r = first; r < stop; r += 1u) {{
let at = base + r * {len}u;
sum += parts[at + d] * exp(max(parts[at + {dim}u] - most, -80.0));
}}
{store}
}}
{end}",
        heads = a.heads,
        begin = a.window.map_or("0u".into(), |w| format!("select(0u, end - {w}u, end > {w}u)")),
    ))
}
