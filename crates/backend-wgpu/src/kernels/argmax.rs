//! The token of the largest logit, and the next step's rows.
//!
//! A workgroup that looked at a whole row would wait for memory again and again, so many look at a part each.

use crate::shader::{Shader, Source};

/// Parts of a row.
pub const PARTS: u32 = 128;

const THREADS: u32 = 256;

const WORDS: &[&str] = &["width", "at"];

/// Numbers that an invocation asks for at once.
const AT_ONCE: u32 = 4;

/// The place that stands for a number that is NaN or infinite.
const SPOILT: &str = "0xffffffffu";

/// WGSL of `better(a, b)`: that of two findings (bits of a number, its place) which counts: one that is spoilt, or the larger
/// number, or of equals the first.
const BETTER: &str = "fn better(a: vec2<u32>, b: vec2<u32>) -> vec2<u32> {
let x = bitcast<f32>(a.x);
let y = bitcast<f32>(b.x);
let other = b.y == 0xffffffffu || (a.y != 0xffffffffu && (y > x || (y == x && b.y < a.y)));
return select(a, b, other);
}";

/// Brings the findings of `threads` invocations together in `found_of[0]`.
fn together(threads: u32) -> String {
    let mut text = String::new();
    let mut width = threads / 2;
    while width > 0 {
        text += &format!(
            "workgroupBarrier();
if local < {width}u {{ found_of[local] = better(found_of[local], found_of[local + {width}u]); }}\n"
        );
        width /= 2;
    }
    text
}

/// For each part of each row: bits and place of its largest number, the first of equals; all ones for the place if one is NaN or
/// infinite. Bindings: logits, found (`[rows, PARTS, 2]`). Words: those of [`argmax`]. Grid: rows, parts.
pub fn scan() -> Shader {
    let mut s = Source::new("argmax_parts", THREADS);
    s.read("logits", "f32");
    s.write("found", "vec2<u32>");
    s.words("u32", WORDS);
    s.shared("found_of", "vec2<u32>", THREADS as usize);
    s.item(BETTER);
    // Minus infinity forbids a token; fast math knows no other of its kind, so the bits are looked at.
    s.item(&format!(
        "fn finding(at: u32, v: f32) -> vec2<u32> {{
let bits = bitcast<u32>(v);
let spoilt = (bits & 0x7f800000u) == 0x7f800000u && bits != 0xff800000u;
return vec2<u32>(bits, select(at, {SPOILT}, spoilt));
}}"
    ));
    let mut body = format!(
        "let row = group.x * p.width;
let each = (p.width + {PARTS}u - 1u) / {PARTS}u;
let last = min((group.y + 1u) * each, p.width) - 1u;
let first = min(group.y * each, last);
var most = finding(first, logits[row + first]);
for (var i = first + local; i <= last; i += {THREADS}u * {AT_ONCE}u) {{\n"
    );
    for u in 0..AT_ONCE {
        body += &format!("let at{u} = min(i + {}u, last);\nlet v{u} = logits[row + at{u}];\n", u * THREADS);
    }
    for u in 0..AT_ONCE {
        body += &format!("most = better(most, finding(at{u}, v{u}));\n");
    }
    body += "}\nfound_of[local] = most;\n";
    body += &together(THREADS);
    s.build(&(body + &format!("if local == 0u {{ found[group.x * {PARTS}u + group.y] = found_of[0]; }}")))
}

/// For each row: the place of its largest number, or all ones if one is NaN or infinite, or all are forbidden. It becomes the row's
/// token, and the row moves on by one position. Bindings: what [`scan`] found, step rows, tokens (`[steps, rows]`). Words: `width`, `at`
/// (where this step's tokens begin). Grid: rows.
pub fn argmax() -> Shader {
    let mut s = Source::new("argmax", PARTS);
    s.read("found", "vec2<u32>");
    s.write("step", "vec4<u32>");
    s.write("tokens", "u32");
    s.words("u32", WORDS);
    s.shared("found_of", "vec2<u32>", PARTS as usize);
    s.item(BETTER);
    let body = format!(
        "found_of[local] = found[group.x * {PARTS}u + local];
{}if local == 0u {{
let old = step[group.x];
let token = select(found_of[0].y, 0xffffffffu, found_of[0].x == 0xff800000u);
step[group.x] = vec4<u32>(token, old.y + 1u, old.z, old.w);
tokens[p.at + group.x] = token;
}}",
        together(PARTS)
    );
    s.build(&body)
}
