//! The Walsh-Hadamard transform: a workgroup takes a block through its stages in workgroup memory, with the element-wise
//! ops around it.

use super::chain::{Chain, Link};
use crate::shader::{Shader, Source};

const THREADS: u32 = 128;

/// Links, a transform of each block, links, and so on: one transform less than there are chains of links.
/// Bindings: x, y, the links' operands. Words: `width` of a row. Grid: blocks, rows.
pub fn hadamard(block: usize, chains: &[Vec<Link>]) -> Shader {
    let mut s = Source::new("hadamard", THREADS);
    s.read("x", "f32");
    s.write("y", "f32");
    s.words("u32", &["width"]);
    s.shared("block", "f32", block);
    let scale = (block as f32).sqrt().recip();
    let mut body = String::new();
    for (i, links) in chains.iter().enumerate() {
        let from = match i {
            0 => String::from("x[e]"),
            _ => format!("block[i] * {scale:?}"),
        };
        let to = if i + 1 == chains.len() { "y[e]" } else { "block[i]" };
        body += &format!(
            "for (var i = local; i < {block}u; i += {THREADS}u) {{
let n = group.x * {block}u + i;
let e = group.y * p.width + n;
var v = {from};
{}{to} = v;
}}\n",
            Chain::declare(&mut s, links, &format!("c{i}_")).apply()
        );
        if i + 1 < chains.len() {
            body += &transform(block);
        }
    }
    s.build(&body)
}

/// Statements that transform what is in `block`, without its scale.
fn transform(block: usize) -> String {
    let mut text = String::new();
    let mut half = 1;
    while half < block {
        text += &format!(
            "workgroupBarrier();
for (var i = local; i < {}u; i += {THREADS}u) {{
let at = i / {half}u * {}u + i % {half}u;
let a = block[at];
let b = block[at + {half}u];
block[at] = a + b;
block[at + {half}u] = a - b;
}}\n",
            block / 2,
            2 * half
        );
        half *= 2;
    }
    text + "workgroupBarrier();\n"
}
