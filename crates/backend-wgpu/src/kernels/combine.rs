//! The biases of experts, and the weighted sum of their results.

use crate::shader::{Shader, Source};

/// Bindings: x, route, y. Words: `width`. Grid: blocks of 256 columns, rows.
pub fn combine(used: usize) -> Shader {
    let mut s = Source::new("combine", 256);
    s.read("x", "f32");
    s.read("route", "f32");
    s.write("y", "f32");
    s.words("u32", &["width"]);
    let terms: Vec<_> = (0..used)
        .map(|slot| {
            format!(
                "x[(group.y * {used}u + {slot}u) * p.width + n] * route[group.y * {}u + {slot}u]",
                2 * used
            )
        })
        .collect();
    s.build(&format!(
        "let n = group.x * 256u + local;
if n >= p.width {{ return; }}
y[group.y * p.width + n] = {};",
        terms.join(" + ")
    ))
}

/// Bindings: x, route, bias `[E, D]`, y. Words: `width` (`used * D`). Grid: blocks of 256 columns, rows.
pub fn expert_bias(used: usize) -> Shader {
    let mut s = Source::new("expert_bias", 256);
    s.read("x", "f32");
    s.read("route", "f32");
    s.read("bias", "f32");
    s.write("y", "f32");
    s.words("u32", &["width"]);
    s.build(&format!(
        "let n = group.x * 256u + local;
if n >= p.width {{ return; }}
let each = p.width / {used}u;
let expert = u32(route[group.y * {}u + {used}u + n / each]);
let e = group.y * p.width + n;
y[e] = x[e] + bias[expert * each + n % each];",
        2 * used
    ))
}
