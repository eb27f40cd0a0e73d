//! The biases of experts, and the weighted sum of their results.

use super::{
    chain::{Chain, Link},
    ends::{Round, declare, keep, rounded},
};
use crate::shader::{Shader, Source};

/// Columns of a workgroup.
const COLUMNS: u32 = 256;

/// The weighted sum, with `links` behind it, and rounded if somebody wants it so. Bindings: x, route, y, the links' operands, then
/// those of a product's rounding. Words: the width. Grid: blocks of 256 columns, rows.
pub fn combine(used: usize, links: &[Link], round: Option<Round>) -> Shader {
    let mut s = Source::new("combine", COLUMNS);
    s.read("x", "f32");
    s.read("route", "f32");
    s.write("y", "f32");
    s.words("u32", &["w0"]);
    let chain = Chain::declare(&mut s, links, "c");
    let terms: Vec<_> = (0..used)
        .map(|slot| {
            format!("x[(group.y * {used}u + {slot}u) * p.w0 + n] * route[group.y * {}u + {slot}u]", 2 * used)
        })
        .collect();
    let kept = round.map_or(String::new(), |round| {
        declare(&mut s, round, 1, COLUMNS as usize);
        keep(round, "local", "norm_of[n]")
    });
    let mut body = format!(
        "let n = group.x * {COLUMNS}u + local;
var v = 0.0;
if n < p.w0 {{
let e = group.y * p.w0 + n;
v = {};
{}y[e] = v;
{kept}}}\n",
        terms.join(" + "),
        chain.apply()
    );
    if let Some(round) = round {
        body += &rounded(round, 1, COLUMNS as usize, false);
    }
    s.build(&body)
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
