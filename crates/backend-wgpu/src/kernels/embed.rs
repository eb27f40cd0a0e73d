//! One row of a table for each token.

use super::weights::Weights;
use crate::{
    form::Form,
    selfcheck::Embed,
    shader::{Shader, Source},
};

/// Bindings: rows of the step, planes, y. Words: `first` and `n` (rows of the table here), `halves`, `k`.
/// Grid: blocks of 64 halves, rows.
pub fn embed(form: &Form) -> Shader {
    let mut s = Source::new("embed", 64);
    s.read("step", "vec4<u32>");
    s.words("u32", &["n", "first", "halves", "k"]);
    let weights = Weights::declare(&mut s, form, "a");
    s.write("y", "f32");
    let mut body = String::from(
        "let h = group.x * 64u + local;
let token = step[group.y].x;
if h >= p.halves || token < p.first || token >= p.first + p.n { return; }\n",
    );
    let names: Vec<_> = ["v", "w"][..weights.at_once()].iter().map(|v| v.to_string()).collect();
    body += &format!("let at = {};\n", weights.place("(token - p.first)"));
    body += &weights.row("r", "at");
    body += &weights.load(&names, "r", "h");
    body += "let e = group.y * p.k + h * 16u;\n";
    for j in 0..4 {
        let numbers = match names.len() {
            1 => weights.decoded("v", j),
            _ => format!("select({}, {}, (at & 1u) == 1u)", weights.decoded("v", j), weights.decoded("w", j)),
        };
        body += &format!("let d{j} = {numbers};\n");
        for c in 0..4 {
            let k = j * 4 + c;
            body += &format!("if h * 16u + {k}u < p.k {{ y[e + {k}u] = d{j}[{c}]; }}\n");
        }
    }
    s.build(&body).with(Embed { form: form.clone() })
}
