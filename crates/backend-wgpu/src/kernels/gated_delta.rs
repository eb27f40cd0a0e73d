//! The gated delta rule: an invocation keeps one column of one head's state through the rows of the step.

use crate::shader::{Shader, Source};
use nibble_graph::GatedDelta;

/// Columns of a workgroup.
pub const COLUMNS: u32 = 64;

/// Bindings: sequences, q, k, v, decay, beta, state (`[slots, heads, key_dim, value_dim]`), y. Grid: value heads, blocks
/// of columns, sequences.
pub fn gated_delta(d: &GatedDelta) -> Shader {
    let mut s = Source::new("gated_delta", COLUMNS);
    s.read("sequences", "vec4<u32>");
    for name in ["q", "k", "v", "decay", "beta"] {
        s.read(name, "f32");
    }
    s.write("state", "f32");
    s.write("y", "f32");
    let GatedDelta { key_heads, value_heads, key_dim, value_dim, scale, .. } = *d;
    s.shared("keys", "f32", key_dim);
    s.shared("queries", "f32", key_dim);
    let key_head = if d.grouped {
        format!("head * {key_heads}u / {value_heads}u")
    } else {
        format!("head % {key_heads}u")
    };
    let mut body = format!(
        "let head = group.x;
let j = group.y * {COLUMNS}u + local;
let mine = j < {value_dim}u;
let column = min(j, {value_dim}u - 1u);
let rows = sequences[group.z * 2u + 1u];
let base = (sequences[group.z * 2u].y * {value_heads}u + head) * {}u + column;
let key_head = {key_head};\n",
        key_dim * value_dim,
    );
    for i in 0..key_dim {
        body += &format!("var s{i} = state[base + {}u];\n", i * value_dim);
    }
    body += &format!(
        "for (var t = rows.x; t < rows.x + rows.y; t += 1u) {{
for (var i = local; i < {key_dim}u; i += {COLUMNS}u) {{
let at = (t * {key_heads}u + key_head) * {key_dim}u + i;
keys[i] = k[at];
queries[i] = q[at];
}}
workgroupBarrier();
let keep = exp(decay[t * {value_heads}u + head]);
var known = 0.0;\n"
    );
    for i in 0..key_dim {
        body += &format!("s{i} *= keep;\nknown += s{i} * keys[{i}];\n");
    }
    body += &format!(
        "let at = (t * {value_heads}u + head) * {value_dim}u + column;
let delta = (v[at] - known) * beta[t * {value_heads}u + head];
var result = 0.0;\n"
    );
    for i in 0..key_dim {
        body += &format!("s{i} += keys[{i}] * delta;\nresult += s{i} * queries[{i}];\n");
    }
    body += &format!("if mine {{ y[at] = result * {scale:?}; }}\nworkgroupBarrier();\n}}\nif mine {{\n");
    for i in 0..key_dim {
        body += &format!("state[base + {}u] = s{i};\n", i * value_dim);
    }
    s.build(&(body + "}"))
}
