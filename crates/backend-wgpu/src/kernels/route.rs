//! Choice of experts: each invocation counts how many beat its own.

use super::norm::sum_of;
use crate::shader::{Shader, Source};
use nibble_graph::{Route, Scoring};

const THREADS: u32 = 128;

/// Bindings: logits, bias if there is one, y. Grid: 1, rows.
pub fn route(r: &Route, experts: usize, bias: bool) -> Shader {
    let mut s = Source::new("route", THREADS);
    s.read("logits", "f32");
    if bias {
        s.read("bias", "f32");
    }
    s.write("y", "f32");
    s.shared("score", &format!("array<f32, {experts}>"));
    s.shared("rank", &format!("array<f32, {experts}>"));
    s.shared("chosen", &format!("array<f32, {}>", r.used));
    let used = r.used;
    let mut body = format!("let row = group.y * {experts}u;\nlet out = group.y * {}u;\n", 2 * used);
    let each = format!("for (var e = local; e < {experts}u; e += {THREADS}u)");
    match r.scoring {
        Scoring::Sigmoid => {
            body += &format!(
                "{each} {{ score[e] = 1.0 / (1.0 + exp(clamp(-logits[row + e], -80.0, 80.0))); }}\n"
            );
        }
        Scoring::Softmax => {
            body += &format!(
                "var most = -1e30;
for (var e = 0u; e < {experts}u; e += 1u) {{ most = max(most, logits[row + e]); }}
var mine = 0.0;
{each} {{ let v = exp(max(logits[row + e] - most, -80.0)); score[e] = v; mine += v; }}\n"
            );
            body += &sum_of(&mut s, THREADS, "mine");
            body += &format!("{each} {{ score[e] = score[e] / total; }}\n");
        }
    }
    let ranked = if bias { "score[e] + bias[e]" } else { "score[e]" };
    body += &format!(
        "{each} {{ rank[e] = {ranked}; }}
workgroupBarrier();
{each} {{
let own = rank[e];
var place = 0u;
for (var o = 0u; o < {experts}u; o += 1u) {{
if rank[o] > own || (rank[o] == own && o < e) {{ place += 1u; }}
}}
if place < {used}u {{ chosen[place] = score[e]; y[out + {used}u + place] = f32(e); }}
}}
workgroupBarrier();
var sum = 1.0;\n"
    );
    if r.normalize {
        body += &format!("sum = 0.0;\nfor (var i = 0u; i < {used}u; i += 1u) {{ sum += chosen[i]; }}\n");
    }
    body += &format!(
        "for (var i = local; i < {used}u; i += {THREADS}u) {{ y[out + i] = chosen[i] / sum * f32({:?}); }}",
        r.scale
    );
    s.build(&body)
}
