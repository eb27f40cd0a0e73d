//! The Walsh-Hadamard transform: a workgroup takes a block through its stages in workgroup memory.

use crate::shader::{Shader, Source};

const THREADS: u32 = 128;

/// Bindings: x, y. Words: `blocks` of a row. Grid: blocks, rows.
pub fn hadamard(block: usize) -> Shader {
    let mut s = Source::new("hadamard", THREADS);
    s.read("x", "f32");
    s.write("y", "f32");
    s.words("u32", &["blocks"]);
    s.shared("v", "f32", block);
    let mut body = format!(
        "let start = (group.y * p.blocks + group.x) * {block}u;
for (var i = local; i < {block}u; i += {THREADS}u) {{ v[i] = x[start + i]; }}\n"
    );
    let mut half = 1;
    while half < block {
        body += &format!(
            "workgroupBarrier();
for (var i = local; i < {}u; i += {THREADS}u) {{
let at = i / {half}u * {}u + i % {half}u;
let a = v[at];
let b = v[at + {half}u];
v[at] = a + b;
v[at + {half}u] = a - b;
}}\n",
            block / 2,
            2 * half
        );
        half *= 2;
    }
    let scale = (block as f32).sqrt().recip();
    s.build(&format!(
        "{body}workgroupBarrier();
for (var i = local; i < {block}u; i += {THREADS}u) {{ y[start + i] = v[i] * {scale:?}; }}"
    ))
}
