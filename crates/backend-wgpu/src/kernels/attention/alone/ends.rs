//! What becomes of a run: the sums of all invocations together, then the runs, then the result.

use super::{Alone, PAGE, RUNS, Shape, THREADS, quantize, sink};
use crate::shader::Source;

/// Runs that are read at once where they are joined.
const AHEAD: u32 = 8;

/// Brings the sums of all invocations together, joins runs if there are several and all are done, and leaves the result.
pub(super) fn finish(s: &mut Source, k: &Alone<'_>, shape: &Shape) -> String {
    let (a, quarter) = (k.op, k.bank.layer.value_dim as u32 / 4);
    let all = shape.g * quarter;
    s.shared("room", "vec4<f32>", (shape.shares * all) as usize);
    if k.joins {
        s.shared("result", "vec4<f32>", all as usize);
    }
    let mut text = format!("if share < {}u {{\n", shape.shares);
    for (i, f, name) in shape.sums() {
        text += &format!(
            "room[(share * {}u + {i}u) * {quarter}u + column * {}u + {f}u] = {name};\n",
            shape.g, shape.fours[1]
        );
    }
    let parts: String =
        (0..shape.shares).map(|share| format!("value += room[e + {}u];\n", share * all)).collect();
    let stats = format!(
        "if local < {}u {{
stats[(row + local) * p.runs + group.z] = vec2<f32>(most_of[local], total_of[local]);
}}\n",
        shape.g
    );
    let sums =
        format!("sums[((row + e / {quarter}u) * p.runs + group.z) * {quarter}u + e % {quarter}u] = value;\n");
    let store = match k.joins {
        true => format!("if stop_run - first_run == 1u {{ result[e] = value; }} else {{\n{sums}}}\n"),
        false => sums,
    };
    text += &format!(
        "}}
workgroupBarrier();
let row = group.y * {heads}u + first_head;
let first_run = begin / {PAGE}u / run;
let stop_run = own_page / run + 1u;
for (var e = local; e < {all}u; e += {THREADS}u) {{
var value = vec4<f32>(0.0);
{parts}{store}}}\n",
        heads = a.heads,
    );
    if !k.joins {
        return text + &stats;
    }
    text += &format!(
        "if stop_run - first_run > 1u {{\n{stats}{}}}\nworkgroupBarrier();\n",
        join(s, shape, quarter)
    );
    let total = |head: &str| {
        let sink = sink(k.sinks, &format!("first_head + {head}"), &format!("most_of[{head}]"));
        format!("(total_of[{head}]{sink})")
    };
    if !k.codes {
        return text
            + &format!(
                "for (var e = local; e < {all}u; e += {THREADS}u) {{
let head = e / {quarter}u;
y[row * {quarter}u + e] = result[e] / {};
}}\n",
                total("head")
            );
    }
    s.item(quantize::LARGEST);
    text += &format!(
        "for (var e = local; e < {}u; e += {THREADS}u) {{
let other = e ^ 1u;
let head = e * 4u / {quarter}u;
let total = {};\n",
        all / 4,
        total("head")
    );
    for j in 0..4 {
        text += &format!(
            "let v{j} = result[e * 4u + {j}u] / total;\nlet o{j} = result[other * 4u + {j}u] / total;\n"
        );
    }
    text += quantize::CODES;
    text + &format!("let to = row * {}u + e;\ny[to] = codes;\nys[to] = scaled;\n}}\n", quarter / 4)
}

/// Leaves what the run has made; the workgroup that is done last goes on with the runs of all.
fn join(s: &mut Source, shape: &Shape, quarter: u32) -> String {
    let (g, all) = (shape.g, shape.g * quarter);
    s.shared("done_before", "u32", 1);
    s.shared("run_weight", "f32", g as usize * RUNS);
    let mut text = format!(
        "storageBarrier();
let counted = group.y * {across}u + group.x;
if local == 0u {{ done_before[0] = atomicAdd(&done[counted], 1u); }}
if workgroupUniformLoad(&done_before[0]) + 1u < stop_run - first_run {{ return; }}
if local == 0u {{ atomicStore(&done[counted], 0u); }}
storageBarrier();
for (var i = sub; i < {g}u; i += subs) {{
let at = (row + i) * p.runs;
var top = -1e30;
for (var r = first_run + lane; r < stop_run; r += lanes) {{ top = max(top, stats[at + r].x); }}
let most = subgroupMax(top);
var sum = 0.0;
for (var r = first_run + lane; r < stop_run; r += lanes) {{
let stat = stats[at + r];
let w = exp(stat.x - most);
run_weight[i * {RUNS}u + r] = w;
sum = fma(stat.y, w, sum);
}}
let total = subgroupAdd(sum);
if lane == 0u {{ most_of[i] = most; total_of[i] = total; }}
}}
workgroupBarrier();
for (var e = local; e < {all}u; e += {THREADS}u) {{
let head = e / {quarter}u;
let at = (row + head) * p.runs;
var value = vec4<f32>(0.0);
for (var r = first_run; r < stop_run; r += {AHEAD}u) {{\n",
        across = shape.across,
    );
    for j in 0..AHEAD {
        text += &format!(
            "let r{j} = min(r + {j}u, stop_run - 1u);
let sum{j} = sums[(at + r{j}) * {quarter}u + e % {quarter}u];
let w{j} = select(0.0, run_weight[head * {RUNS}u + r{j}], r + {j}u < stop_run);\n"
        );
    }
    for j in 0..AHEAD {
        text += &format!("value = fma(vec4<f32>(w{j}), sum{j}, value);\n");
    }
    text + "}\nresult[e] = value;\n}\n"
}
