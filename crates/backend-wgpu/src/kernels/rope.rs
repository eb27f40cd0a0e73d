//! Rotary position embedding by a table of cosines and sines.

use crate::shader::{Shader, Source};
use nibble_graph::RopeLayout;

/// Bindings: step rows, table (`[positions, dims / 2]` of cosine and sine), x, y. Words: `width`, `head`, `dims`.
/// The table's row is the position of the row, or the row's number with `by_row`. Grid: blocks of 256 columns, rows.
pub fn rope(layout: RopeLayout, by_row: bool) -> Shader {
    let mut s = Source::new("rope", 256);
    s.read("step", "vec4<u32>");
    s.read("turns", "vec2<f32>");
    s.read("x", "f32");
    s.write("y", "f32");
    s.words("u32", &["width", "head", "dims"]);
    let place = if by_row { "group.y" } else { "step[group.y].y" };
    let (pair, first, other) = match layout {
        RopeLayout::Split => ("d % half", "d < half", "select(n - half, n + half, first)"),
        RopeLayout::Interleaved => ("d / 2u", "d % 2u == 0u", "n ^ 1u"),
    };
    // Heads of an odd size shift which columns are even.
    let other = if layout == RopeLayout::Interleaved { "select(n - 1u, n + 1u, first)" } else { other };
    s.build(&format!(
        "let n = group.x * 256u + local;
if n >= p.width {{ return; }}
let row = group.y * p.width;
let d = n % p.head;
let v = x[row + n];
if d >= p.dims {{ y[row + n] = v; return; }}
let half = p.dims / 2u;
let turn = turns[{place} * half + {pair}];
let first = {first};
let o = x[row + {other}];
y[row + n] = fma(v, turn.x, select(o, -o, first) * turn.y);"
    ))
}
