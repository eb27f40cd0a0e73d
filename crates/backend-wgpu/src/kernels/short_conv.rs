//! Causal depth-wise convolution: an invocation takes one column of a sequence through the rows of the step.

use crate::shader::{Shader, Source};

/// Bindings: sequences, x, weight (`[D, kernel]`), state (`[slots, kernel - 1, D]`), y. Words: `width`.
/// Grid: blocks of 64 columns, sequences.
pub fn short_conv(kernel: usize) -> Shader {
    let mut s = Source::new("short_conv", 64);
    s.read("sequences", "vec4<u32>");
    s.read("x", "f32");
    s.read("weight", "f32");
    s.write("state", "f32");
    s.write("y", "f32");
    s.words("u32", &["width"]);
    let past = kernel - 1;
    let mut body = format!(
        "let d = group.x * 64u + local;
if d >= p.width {{ return; }}
let head = sequences[group.y * 2u];
let rows = sequences[group.y * 2u + 1u];
let slot = head.y * {past}u * p.width + d;\n"
    );
    for j in 0..past {
        body += &format!("var x{j} = state[slot + {j}u * p.width];\n");
    }
    for j in 0..kernel {
        body += &format!("let w{j} = weight[d * {kernel}u + {j}u];\n");
    }
    body += &format!(
        "for (var t = rows.x; t < rows.x + rows.y; t += 1u) {{\nlet x{past} = x[t * p.width + d];\n"
    );
    let sum: Vec<_> = (0..kernel).map(|j| format!("w{j} * x{j}")).collect();
    body += &format!("y[t * p.width + d] = {};\n", sum.join(" + "));
    for j in 0..past {
        body += &format!("x{j} = x{};\n", j + 1);
    }
    body += "}\n";
    for j in 0..past {
        body += &format!("state[slot + {j}u * p.width] = x{j};\n");
    }
    s.build(&body)
}
