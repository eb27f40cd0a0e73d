//! What the runs of a sequence yield, joined.

use super::{MERGE, RUN_OF, RUNS, begin, declare_sinks, sink};
use crate::{
    kernels::{
        kv::{Bank, PAGE},
        kv_blocks, quantize,
    },
    shader::{Shader, Source},
};
use nibble_graph::Attention;

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
        declare_sinks(&mut s);
    }
    let result = format!("sum / (total{})", sink(sinks, "group.x", "most"));
    s.words("u32", &["runs"]);
    s.item(RUN_OF);
    s.shared("stat", "vec2<f32>", RUNS);
    s.shared("weight", "f32", RUNS);
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
            s.shared("turned", "f32", dim as usize);
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
let keep = exp(most - next);
let stat_weight = exp(stat[r].x - next);
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
    s.shared("share_of", ty, (groups * columns) as usize);
    body += &format!(
        "var most = -1e30;
for (var r = first; r < stop; r += 1u) {{ most = max(most, stat[r].x); }}
if local >= first && local < stop {{ weight[local] = exp(stat[local].x - most); }}
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
        s.shared("result", "vec4<f32>", (dim / 4) as usize);
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
