//! The token of the largest logit, and the next step's rows.

use crate::shader::{Shader, Source};

const THREADS: u32 = 256;

/// For each row: the place of its largest number, the first of equals, or all ones if one is NaN or infinite, or all are forbidden. It becomes the row's token, and the row moves on by
/// one position. Bindings: logits, step rows, tokens (`[steps, rows]`). Words: `width`, `at` (where this step's tokens begin).
/// Grid: rows.
pub fn argmax() -> Shader {
    let mut s = Source::new("argmax", THREADS);
    s.read("logits", "f32");
    s.write("step", "vec4<u32>");
    s.write("tokens", "u32");
    s.words("u32", &["width", "at"]);
    s.shared("best", "f32", THREADS as usize);
    s.shared("place", "u32", THREADS as usize);
    s.shared("spoilt", "atomic<u32>", 1);
    let mut body = format!(
        "if local == 0u {{ atomicStore(&spoilt[0], 0u); }}
workgroupBarrier();
let row = group.x * p.width;
var most = logits[row];
var most_at = 0u;
var odd = 0u;
for (var i = local; i < p.width; i += {THREADS}u) {{
let v = logits[row + i];
// Minus infinity forbids a token; fast math knows no other of its kind, so the bits are looked at.
let bits = bitcast<u32>(v);
if (bits & 0x7f800000u) == 0x7f800000u && bits != 0xff800000u {{ odd = 1u; }}
if v > most {{ most = v; most_at = i; }}
}}
if odd == 1u {{ atomicStore(&spoilt[0], 1u); }}
best[local] = most;
place[local] = most_at;\n"
    );
    let mut width = THREADS / 2;
    while width > 0 {
        body += &format!(
            "workgroupBarrier();
if local < {width}u {{
let v = best[local + {width}u];
let at = place[local + {width}u];
if v > best[local] || (v == best[local] && at < place[local]) {{ best[local] = v; place[local] = at; }}
}}\n"
        );
        width /= 2;
    }
    s.build(
        &(body
            + "if local == 0u {
let old = step[group.x];
let none = atomicLoad(&spoilt[0]) == 1u || bitcast<u32>(best[0]) == 0xff800000u;
let token = select(place[0], 0xffffffffu, none);
step[group.x] = vec4<u32>(token, old.y + 1u, old.z, old.w);
tokens[p.at + group.x] = token;
}"),
    )
}
