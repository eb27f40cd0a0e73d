//! Words from one place of a buffer to another: pages and states.

use crate::shader::{Shader, Source};

/// Bindings: the buffer. Words: `from`, `to`, `len`. Grid: blocks of 256 words, in two dimensions of up to 32768.
pub fn copy() -> Shader {
    let mut s = Source::new("copy", 256);
    s.write("words", "u32");
    s.words("u32", &["source", "target_at", "len"]);
    s.build(
        "let i = (group.y * 32768u + group.x) * 256u + local;
if i < p.len { words[p.target_at + i] = words[p.source + i]; }",
    )
}
