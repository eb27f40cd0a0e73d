//! Reading planes in WGSL: 16 numbers of a row at a time.

use crate::{
    form::{Codes, Form},
    shader::Source,
};

/// A matrix in a kernel: its bindings carry its prefix.
pub struct Weights<'a> {
    form: &'a Form,
    prefix: &'static str,
}

/// Half-precision numbers are read in words of two, which every device can.
const HALF: &str = "fn half_of(word: u32, high: bool) -> f32 { let pair = unpack2x16float(word); \
                    return select(pair.x, pair.y, high); }";

impl<'a> Weights<'a> {
    /// Declares the bindings, in the order of [`Form::words`], and the immediate `{prefix}_factor`.
    pub fn declare(s: &mut Source, form: &'a Form, prefix: &'static str) -> Self {
        match form {
            Form::F32 => s.read(prefix, "vec4<f32>"),
            Form::F16 | Form::Bf16 => s.read(prefix, "vec4<u32>"),
            Form::Planes { codes, offsets, .. } => {
                for (width, _) in form.planes() {
                    let element = match width {
                        8 => "vec4<u32>",
                        4 => "vec2<u32>",
                        _ => "u32",
                    };
                    s.read(&format!("{prefix}_{width}"), element);
                }
                s.read(&format!("{prefix}_scales"), "u32");
                if *offsets {
                    s.read(&format!("{prefix}_offsets"), "u32");
                }
                s.item(HALF);
                if let Codes::Table(table) = codes {
                    s.item(&lookup(prefix, table));
                }
            }
        }
        s.words("f32", &[&format!("{prefix}_factor")]);
        Self { form, prefix }
    }

    /// Whether sums of the other factor are needed: for zeros and offsets.
    pub fn needs_sums(&self) -> bool {
        self.form.zero() != 0.0 || self.has_offsets()
    }

    fn has_offsets(&self) -> bool {
        matches!(self.form, Form::Planes { offsets: true, .. })
    }

    /// Reads half `at` (an expression): for codes `{v}0` to `{v}3`, four bytes each, with scale `{v}s` and offset `{v}o`;
    /// for floats `{v}0` to `{v}3`, four numbers each.
    pub fn load(&self, v: &str, at: &str) -> String {
        let w = self.prefix;
        match self.form {
            Form::F32 => (0..4).map(|j| format!("let {v}{j} = {w}[({at}) * 4u + {j}u];\n")).collect(),
            Form::F16 => self.pairs(v, at, |x| format!("unpack2x16float({x})")),
            Form::Bf16 => {
                self.pairs(v, at, |x| format!("bitcast<vec2<f32>>(vec2({x} << 16u, {x} & 0xffff0000u))"))
            }
            Form::Planes { group, .. } => self.codes(v, at, *group),
        }
    }

    fn pairs(&self, v: &str, at: &str, two: impl Fn(&str) -> String) -> String {
        let w = self.prefix;
        let mut text = String::new();
        for half in 0..2 {
            text += &format!("let {v}w{half} = {w}[({at}) * 2u + {half}u];\n");
            for (j, [a, b]) in [["x", "y"], ["z", "w"]].iter().enumerate() {
                let [a, b] = [a, b].map(|c| two(&format!("{v}w{half}.{c}")));
                text += &format!("let {v}{} = vec4<f32>({a}, {b});\n", half * 2 + j);
            }
        }
        text
    }

    fn codes(&self, v: &str, at: &str, group: usize) -> String {
        let w = self.prefix;
        let mut text = format!("let {v}at = {at};\n");
        let mut packs = vec![String::new(); 4];
        for (width, shift) in self.form.planes() {
            let index = if width == 1 { format!("{v}at >> 1u") } else { format!("{v}at") };
            text += &format!("let {v}w{width} = {w}_{width}[{index}];\n");
            for (j, pack) in packs.iter_mut().enumerate() {
                let component = ["x", "y", "z", "w"];
                let part = match width {
                    8 => format!("{v}w8.{}", component[j]),
                    4 if j % 2 == 0 => format!("({v}w4.{} & 0x0f0f0f0fu)", component[j / 2]),
                    4 => format!("(({v}w4.{} >> 4u) & 0x0f0f0f0fu)", component[j / 2]),
                    2 => format!("(({v}w2 >> {}u) & 0x03030303u)", 2 * j),
                    _ => format!("(({v}w1 >> (({v}at & 1u) * 4u + {j}u)) & 0x01010101u)"),
                };
                let part = if shift == 0 { part } else { format!("({part} << {shift}u)") };
                *pack = if pack.is_empty() { part } else { format!("{pack} | {part}") };
            }
        }
        let table = matches!(self.form, Form::Planes { codes: Codes::Table(_), .. });
        for (j, pack) in packs.iter().enumerate() {
            let pack = if table { format!("{w}_lookup({pack})") } else { pack.clone() };
            text += &format!("let {v}{j} = {pack};\n");
        }
        let group = if group == 16 { format!("{v}at") } else { format!("({v}at >> 1u)") };
        let mut half = |name: &str, plane: &str| {
            text += &format!("let {v}{name} = half_of({w}_{plane}[{group} >> 1u], ({group} & 1u) == 1u);\n");
        };
        half("s", "scales");
        if self.has_offsets() {
            half("o", "offsets");
        }
        text
    }

    /// Four codes of `{v}{j}` as floats, without scale and zero.
    pub fn numbers(&self, v: &str, j: usize) -> String {
        match self.form {
            Form::Planes { codes: Codes::Signed | Codes::Table(_), .. } => {
                format!("vec4<f32>(unpack4xI8({v}{j}))")
            }
            Form::Planes { .. } => format!("vec4<f32>(unpack4xU8({v}{j}))"),
            _ => format!("{v}{j}"),
        }
    }

    /// Adds a half's share to a sum: `dot` (of the codes or numbers) with its scale, `sum` (of the other factor) with
    /// zero and offset.
    pub fn share(&self, v: &str, dot: &str, sum: &str) -> String {
        if !self.form.is_codes() {
            return dot.into();
        }
        let zero = self.form.zero();
        let dot = if zero == 0.0 { dot.into() } else { format!("({dot} + {zero:?} * {sum})") };
        if self.has_offsets() { format!("{v}s * {dot} + {v}o * {sum}") } else { format!("{v}s * {dot}") }
    }

    /// Number `j` quarter of the half as four finished numbers.
    pub fn decoded(&self, v: &str, j: usize) -> String {
        let w = self.prefix;
        let numbers = self.numbers(v, j);
        if !self.form.is_codes() {
            return numbers;
        }
        let zero = self.form.zero();
        let numbers = if zero == 0.0 { numbers } else { format!("({numbers} + {zero:?})") };
        let offset = if self.has_offsets() { format!(" + {v}o * p.{w}_factor") } else { String::new() };
        format!("({numbers} * ({v}s * p.{w}_factor){offset})")
    }
}

/// Four nibbles, one a byte, replaced by their entries.
fn lookup(prefix: &str, table: &[i8]) -> String {
    let byte = |i: usize| u32::from(table.get(i).copied().unwrap_or(0) as u8);
    let words: Vec<String> = (0..4)
        .map(|w| format!("{:#x}u", (0..4).fold(0, |word, b| word | byte(w * 4 + b) << (8 * b))))
        .collect();
    let [a, b, c, d] = &words[..] else { unreachable!("four words") };
    let one = |i: u32| format!("{prefix}_entry((x >> {}u) & 15u) << {}u", 8 * i, 8 * i);
    format!(
        "fn {prefix}_entry(i: u32) -> u32 {{ let word = select(select({a}, {b}, i >= 4u), select({c}, {d}, i >= 12u), \
         i >= 8u); return (word >> ((i & 3u) * 8u)) & 255u; }}\n\
         fn {prefix}_lookup(x: u32) -> u32 {{ return {} | {} | {} | {}; }}",
        one(0),
        one(1),
        one(2),
        one(3)
    )
}
