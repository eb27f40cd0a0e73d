//! WGSL text from parts: bindings, immediates, workgroup memory, a body.

use crate::selfcheck::Twin;
use std::{
    fmt::Write,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

/// There are no steps without rows, but compilers do not know it.
const APART: &str = "fn apart(x: f32) -> f32 { return select(x, 0.0, p.rows == 0u); }";

/// How a kernel uses a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Read only.
    Read,
    /// Read and written.
    Write,
}

/// A finished kernel. Two calls with the same text share one pipeline.
#[derive(Clone, Debug)]
pub struct Shader {
    /// What it computes, for reports.
    pub label: String,
    /// WGSL.
    pub text: String,
    /// Its bindings, in order.
    pub access: Vec<Access>,
    /// 32-bit words of immediates; the first is the number of rows.
    pub words: usize,
    /// What it is to compute, if it is tried before it is trusted.
    pub twin: Option<Arc<dyn Twin>>,
}

impl PartialEq for Shader {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Shader {}

impl Hash for Shader {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.text.hash(state);
    }
}

impl Shader {
    /// The kernel, to be tried before it is trusted.
    pub fn with(self, twin: impl Twin + 'static) -> Self {
        Self { twin: Some(Arc::new(twin)), ..self }
    }

    /// What it is remembered by: its text and what it is to compute.
    pub fn key(&self) -> String {
        hash(&[&self.text, &format!("{:?}", self.twin)])
    }
}

/// Texts as one word of a name; the same for one build.
pub fn hash(texts: &[&str]) -> String {
    let mut state = DefaultHasher::new();
    texts.hash(&mut state);
    format!("{:016x}", state.finish())
}

/// A kernel being written.
///
/// Every kernel has the immediate `p.rows`, the rows of the step that it works on, and the variables `group`
/// (`vec3<u32>`, the workgroup) and `local` (the invocation in it); those that ask for subgroups have `lane`, `lanes`,
/// `sub` and `subs` too: place and size of the subgroup, number and count in the workgroup.
///
/// A compiler of a driver may make one operation of a product and the addition behind it, which rounds once instead of
/// twice, and does so in one kernel and not in another. Where kernels must agree to the bit, write `fma` if the two belong
/// together, and `apart(product)`, which keeps a product out of what is added to it, if they do not.
pub struct Source {
    label: String,
    threads: u32,
    enables: Vec<&'static str>,
    bindings: String,
    access: Vec<Access>,
    words: Vec<(String, &'static str)>,
    items: String,
    subgroups: bool,
}

impl Source {
    /// A kernel whose workgroups have so many invocations.
    pub fn new(label: impl Into<String>, threads: u32) -> Self {
        Self {
            label: label.into(),
            threads,
            enables: vec![],
            bindings: String::new(),
            access: vec![],
            words: vec![("rows".into(), "u32")],
            items: String::new(),
            subgroups: false,
        }
    }

    fn bind(&mut self, access: Access, attribute: &str, name: &str, element: &str) {
        let mode = if access == Access::Read { "read" } else { "read_write" };
        let index = self.access.len();
        let line =
            format!("@group(0) @binding({index}) {attribute}var<storage, {mode}> {name}: array<{element}>;");
        writeln!(self.bindings, "{line}").expect("strings take text");
        self.access.push(access);
    }

    /// The next binding: an array that is only read.
    pub fn read(&mut self, name: &str, element: &str) {
        self.bind(Access::Read, "", name, element);
    }

    /// The next binding: an array that is written.
    pub fn write(&mut self, name: &str, element: &str) {
        self.bind(Access::Write, "", name, element);
    }

    /// The next binding: an array that workgroups write for each other. What one leaves before a `storageBarrier` and an atomic
    /// operation, one that comes after these reads; devices say whether they can ([`crate::adapters::Caps::coherent`]).
    pub fn coherent(&mut self, name: &str, element: &str) {
        self.bind(Access::Write, "@coherent ", name, element);
    }

    /// The next immediates, each 32 bits, read as `p.name`.
    pub fn words(&mut self, ty: &'static str, names: &[&str]) {
        self.words.extend(names.iter().map(|n| (n.to_string(), ty)));
    }

    /// Workgroup memory: an array of so many numbers or vectors of them, made longer to whole vectors of 16 bytes.
    ///
    /// Behind anything shorter, NVIDIA's driver 580 loads and stores matrices at the wrong place, without a word.
    pub fn shared(&mut self, name: &str, element: &str, count: usize) {
        let lanes = match element.as_bytes() {
            [b'v', b'e', b'c', lanes @ b'2'..=b'4', ..] => usize::from(lanes - b'0').next_power_of_two(),
            _ => 1,
        };
        let bytes = lanes * if element.contains("f16") { 2 } else { 4 };
        let whole = count.next_multiple_of(16usize.div_ceil(bytes));
        writeln!(self.items, "var<workgroup> {name}: array<{element}, {whole}>;").expect("strings take text");
    }

    /// A function or a constant, once.
    pub fn item(&mut self, text: &str) {
        if !self.items.contains(text) {
            self.items.push_str(text);
            self.items.push('\n');
        }
    }

    /// A language extension.
    pub fn enable(&mut self, name: &'static str) {
        if !self.enables.contains(&name) {
            self.enables.push(name);
        }
    }

    /// Subgroup operations and the variables that go with them.
    pub fn subgroups(&mut self) {
        self.subgroups = true;
    }

    /// The kernel with that body.
    pub fn build(self, body: &str) -> Shader {
        let Self { label, threads, enables, bindings, access, words, items, subgroups } = self;
        let enables: String = enables.iter().map(|e| format!("enable {e};\n")).collect();
        let fields: String = words.iter().map(|(name, ty)| format!(" {name}: {ty},")).collect();
        let more = if subgroups {
            ", @builtin(subgroup_invocation_id) lane: u32, @builtin(subgroup_size) lanes: u32, \
             @builtin(subgroup_id) sub: u32, @builtin(num_subgroups) subs: u32"
        } else {
            ""
        };
        let text = format!(
            "{enables}struct Params {{{fields} }}\nvar<immediate> p: Params;\n{APART}\n{bindings}{items}\n\
             @compute @workgroup_size({threads})\nfn main(@builtin(workgroup_id) group: vec3<u32>, \
             @builtin(local_invocation_index) local: u32{more}) {{\n{body}\n}}\n"
        );
        Shader { label, text, access, words: words.len(), twin: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workgroup_memory_comes_in_whole_vectors() {
        let mut s = Source::new("test", 1);
        s.shared("a", "atomic<u32>", 1);
        s.shared("b", "f16", 9);
        s.shared("c", "vec2<f32>", 3);
        s.shared("d", "vec3<f16>", 1);
        s.shared("e", "vec4<f32>", 1);
        let text = s.build("").text;
        for array in ["atomic<u32>, 4", "f16, 16", "vec2<f32>, 4", "vec3<f16>, 2", "vec4<f32>, 1"] {
            assert!(text.contains(&format!("array<{array}>;")), "{array}: {text}");
        }
    }
}
