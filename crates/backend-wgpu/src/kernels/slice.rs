//! Some columns of each group; some rows.

use crate::shader::{Shader, Source};

/// Bindings: x, y. Words: `width` of a row of y, `part` (columns group, start, len). Grid: blocks of 256 columns, rows.
pub fn slice() -> Shader {
    let mut s = Source::new("slice", 256);
    s.read("x", "f32");
    s.write("y", "f32");
    s.words("u32", &["width", "size", "start", "len"]);
    s.build(
        "let n = group.x * 256u + local;
if n >= p.width { return; }
let source = group.y * (p.width / p.len) * p.size + n / p.len * p.size + p.start + n % p.len;
y[group.y * p.width + n] = x[source];",
    )
}

/// The rows whose output is wanted. Bindings: their numbers, x, y. Words: `width`. Grid: blocks of 256 columns, rows.
pub fn wanted() -> Shader {
    let mut s = Source::new("wanted", 256);
    s.read("numbers", "u32");
    s.read("x", "f32");
    s.write("y", "f32");
    s.words("u32", &["width"]);
    s.build(
        "let n = group.x * 256u + local;
if n >= p.width { return; }
y[group.y * p.width + n] = x[numbers[group.y] * p.width + n];",
    )
}

/// The columns that a vector names, 0 for -1. Bindings: x, their numbers, y. Words: `width` of x, `len` of the vector.
/// Grid: blocks of 256 columns, rows.
pub fn columns() -> Shader {
    let mut s = Source::new("columns", 256);
    s.read("x", "f32");
    s.read("numbers", "f32");
    s.write("y", "f32");
    s.words("u32", &["width", "len"]);
    s.build(
        "let n = group.x * 256u + local;
if n >= p.len { return; }
let column = numbers[n];
y[group.y * p.len + n] = select(0.0, x[group.y * p.width + u32(max(column, 0.0))], column >= 0.0);",
    )
}
