//! Reading planes in WGSL: 16 numbers of a row at a time.

use super::trellis;
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
            &Form::F8 { mantissa, group } => {
                s.read(&format!("{prefix}_8"), "vec4<u32>");
                if group.is_some() {
                    s.read(&format!("{prefix}_scales"), "f32");
                }
                s.item(&eights(mantissa));
            }
            Form::F32 => s.read(prefix, "vec4<f32>"),
            Form::F16 | Form::Bf16 => s.read(prefix, "vec4<u32>"),
            &Form::Trellis { bits, book, half } => {
                s.read(prefix, trellis::element(bits));
                trellis::declare(s, book, half);
            }
            Form::Planes { codes, offsets, .. } => {
                for (width, _) in form.planes() {
                    s.read(&format!("{prefix}_{width}"), plane_element(width));
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

    /// Results whose halves are read at once.
    pub fn at_once(&self) -> usize {
        self.form.at_once()
    }

    /// The result that is kept at place `n` (an expression).
    pub fn result(&self, n: &str) -> String {
        match self.form {
            Form::Trellis { .. } => format!("(({n} & ~15u) | (({n} & 1u) << 3u) | ((({n}) >> 1u) & 7u))"),
            _ => n.into(),
        }
    }

    /// The place of result `n` (an expression).
    pub fn place(&self, n: &str) -> String {
        match self.form {
            Form::Trellis { .. } => format!("(({n} & ~15u) | (({n} & 7u) << 1u) | ((({n}) >> 3u) & 1u))"),
            _ => n.into(),
        }
    }

    /// Statements that make `row` where the halves of the results from place `n` on begin (an expression).
    pub fn row(&self, row: &str, n: &str) -> String {
        match self.form {
            Form::Trellis { .. } => format!(
                "let {row}n = ({n}) >> 1u;
let {row} = {row}n * p.halves;
let {row}b = (({row}n & ~7u) | (({row}n + 7u) & 7u)) * p.halves;\n"
            ),
            _ => format!("let {row} = ({n}) * p.halves;\n"),
        }
    }

    /// Reads half `h` (an expression) of each result from `row` on, as many as are read at once: for codes `{v}0` to
    /// `{v}3`, four bytes each, with scale `{v}s` and offset `{v}o`; for floats `{v}0` to `{v}3`, four numbers each.
    pub fn load(&self, vs: &[String], row: &str, h: &str) -> String {
        let v = &vs[0];
        let words = self.words(v);
        let reads: String = words.iter().map(|(name, _, read)| format!("let {name} = {read};\n")).collect();
        let before = self.before(row, h).map_or(String::new(), |at| format!("let {v}before = {at};\n"));
        format!("let {v}at = {row} + {h};\n{before}{reads}{}", self.unpack(vs))
    }

    /// Declares variables for the words of a half, to be read by [`Self::fetch`] before they are needed.
    pub fn declare_words(&self, v: &str) -> String {
        let words: String =
            self.words(v).iter().map(|(name, ty, _)| format!("var {name}: {ty};\n")).collect();
        format!("var {v}at = 0u;\nvar {v}before = 0u;\n{words}")
    }

    /// Reads the words of half `h` of results from `row` on into variables that were declared.
    pub fn fetch(&self, v: &str, row: &str, h: &str) -> String {
        let reads: String =
            self.words(v).iter().map(|(name, _, read)| format!("{name} = {read};\n")).collect();
        let before = self.before(row, h).map_or(String::new(), |at| format!("{v}before = {at};\n"));
        format!("{v}at = {row} + {h};\n{before}{reads}")
    }

    /// The unit of a trellis that ends with what a half begins with.
    fn before(&self, row: &str, h: &str) -> Option<String> {
        matches!(self.form, Form::Trellis { .. }).then(|| format!("{row}b + {h}"))
    }

    /// The words of half `{v}at`: name, type, expression.
    fn words(&self, v: &str) -> Vec<(String, &'static str, String)> {
        let w = self.prefix;
        if let &Form::Trellis { bits, .. } = self.form {
            let ((width, count), ty) = (trellis::reads(bits), trellis::element(bits));
            let word = |i| (format!("{v}w{i}"), ty, format!("{w}[{v}at * {count}u + {i}u]"));
            let mut words: Vec<_> = (0..count).map(word).collect();
            let last = trellis::component(bits, width - 1);
            let before = format!("{w}[{v}before * {count}u + {}u]{last}", count - 1);
            words.push((format!("{v}wp"), "u32", before));
            return words;
        }
        if let &Form::F8 { group, .. } = self.form {
            let codes = (format!("{v}w8"), "vec4<u32>", format!("{w}_8[{v}at]"));
            let scale = |group| (format!("{v}ws"), "f32", format!("{w}_scales[{v}at / {}u]", group / 16));
            return [codes].into_iter().chain(group.map(scale)).collect();
        }
        let Form::Planes { group, .. } = self.form else {
            let (count, ty) = if *self.form == Form::F32 { (4, "vec4<f32>") } else { (2, "vec4<u32>") };
            let word = |i| (format!("{v}w{i}"), ty, format!("{w}[{v}at * {count}u + {i}u]"));
            return (0..count).map(word).collect();
        };
        let mut words = vec![];
        for (width, _) in self.form.planes() {
            let index = if width == 1 { format!("{v}at >> 1u") } else { format!("{v}at") };
            words.push((format!("{v}w{width}"), plane_element(width), format!("{w}_{width}[{index}]")));
        }
        let group = if *group == 16 { format!("{v}at >> 1u") } else { format!("{v}at >> 2u") };
        words.push((format!("{v}ws"), "u32", format!("{w}_scales[{group}]")));
        if self.has_offsets() {
            words.push((format!("{v}wo"), "u32", format!("{w}_offsets[{group}]")));
        }
        words
    }

    /// What [`Self::load`] leaves, from words that were read.
    pub fn unpack(&self, vs: &[String]) -> String {
        let v = vs[0].as_str();
        match self.form {
            &Form::Trellis { bits, .. } => {
                let numbers = |second: usize, j| {
                    let four = trellis::four(bits, v, second == 1, j);
                    format!("let {}{j} = {four};\n", vs[second])
                };
                (0..8).map(|i| numbers(i / 4, i % 4)).collect()
            }
            Form::F8 { group, .. } => {
                let scale = if group.is_some() { format!(" * {v}ws") } else { String::new() };
                let four = |(j, c)| format!("let {v}{j} = eights({v}w8.{c}){scale};\n");
                ["x", "y", "z", "w"].into_iter().enumerate().map(four).collect()
            }
            Form::F32 => (0..4).map(|j| format!("let {v}{j} = {v}w{j};\n")).collect(),
            Form::F16 => pairs(v, |x| format!("unpack2x16float({x})")),
            Form::Bf16 => pairs(v, |x| format!("bitcast<vec2<f32>>(vec2({x} << 16u, {x} & 0xffff0000u))")),
            Form::Planes { group, .. } => self.codes(v, *group),
        }
    }

    fn codes(&self, v: &str, group: usize) -> String {
        let w = self.prefix;
        let mut text = String::new();
        let mut packs = vec![String::new(); 4];
        for (width, shift) in self.form.planes() {
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
        let high = if group == 16 { format!("({v}at & 1u) == 1u") } else { format!("({v}at & 2u) == 2u") };
        text += &format!("let {v}s = half_of({v}ws, {high});\n");
        if self.has_offsets() {
            text += &format!("let {v}o = half_of({v}wo, {high});\n");
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
            &Form::Trellis { book, half, .. } if !trellis::is_rounded(book, half) => {
                format!("in_half({v}{j})")
            }
            _ => format!("{v}{j}"),
        }
    }

    /// Adds a half's share to the sum `to`, if `guard` holds: `dot` times `by` (of the codes or numbers) with its scale, `sum`
    /// (of the other factor) with zero and offset.
    pub fn add_share(
        &self,
        to: &str,
        v: &str,
        [dot, by]: [&str; 2],
        sum: &str,
        guard: Option<&str>,
    ) -> String {
        let only = |x: String| match guard {
            Some(guard) => format!("select(0.0, {x}, {guard})"),
            None => x,
        };
        if !self.form.is_codes() {
            return format!("{to} += {};\n", only(dot.into()));
        }
        let zero = self.form.zero();
        let dot = match zero == 0.0 {
            true => format!("{dot} * {by}"),
            false => format!("fma({dot}, {by}, {zero:?} * {sum})"),
        };
        let mut text = format!("{to} = fma({}, {dot}, {to});\n", only(format!("{v}s")));
        if self.has_offsets() {
            text += &format!("{to} = fma({}, {sum}, {to});\n", only(format!("{v}o")));
        }
        text
    }

    /// Statements that leave `{v}h0` to `{v}h3`: four numbers each in half precision, in the order 0, 2, 1, 3, without the
    /// matrix's factor and divided by [`HALF_SCALE`] if they are codes. Codes become the last bits of 1024.0: nothing is
    /// converted.
    pub fn halves(&self, v: &str) -> String {
        let Form::Planes { codes, .. } = self.form else {
            return (0..4).map(|j| format!("let {v}h{j} = vec4<f16>({v}{j}.xzyw);\n")).collect();
        };
        let signed = matches!(codes, Codes::Signed | Codes::Table(_));
        // Above 1024 there are no fractions: such a zero is an offset.
        let zero = self.form.zero();
        let (start, fraction) = match (signed, zero.fract() == 0.0) {
            (true, _) => (1152.0, 0.0),
            (_, true) => (1024.0 - zero, 0.0),
            _ => (1024.0, zero),
        };
        let mut text = format!("let {v}f = f16({v}s / {HALF_SCALE:?});\n");
        let offset = match (self.has_offsets(), fraction == 0.0) {
            (true, _) => format!("{v}o / {HALF_SCALE:?}"),
            (_, true) => String::new(),
            _ => format!("{v}s * {:?}", fraction / HALF_SCALE),
        };
        if !offset.is_empty() {
            text += &format!("let {v}g = f16({offset});\n");
        }
        for j in 0..4 {
            let code = if signed { format!("({v}{j} ^ 0x80808080u)") } else { format!("{v}{j}") };
            let pair = |from: String| format!("unpack2x16float(({from} & 0x00ff00ffu) | 0x64006400u)");
            let (even, odd) = (pair(code.clone()), pair(format!("({code} >> 8u)")));
            let offset = if offset.is_empty() { String::new() } else { format!(" + {v}g") };
            text += &format!(
                "let {v}h{j} = (vec4<f16>(vec2<f16>({even}), vec2<f16>({odd})) - {start:?}h) * {v}f{offset};\n"
            );
        }
        text
    }

    /// By what results of [`Self::halves`] are multiplied.
    pub fn halves_factor(&self) -> String {
        let scale = if self.form.is_codes() { HALF_SCALE } else { 1.0 };
        format!("p.{}_factor * {scale:?}", self.prefix)
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

/// Declares the function from four bytes to eight-bit floats: integers of few bits, so that no small number is lost.
fn eights(mantissa: u32) -> String {
    let (exponents, one) = (0x7f >> mantissa, 1 << mantissa);
    let least = 2f32.powi(1 - exponents / 2 - mantissa as i32);
    format!(
        "fn eights(word: u32) -> vec4<f32> {{
let c = unpack4xU8(word);
let e = (c >> vec4<u32>({mantissa}u)) & vec4<u32>({exponents}u);
let m = (c & vec4<u32>({}u)) + select(vec4<u32>(0u), vec4<u32>({one}u), e > vec4<u32>(0u));
let x = vec4<f32>(m << (max(e, vec4<u32>(1u)) - vec4<u32>(1u))) * {least:?};
return bitcast<vec4<f32>>(bitcast<vec4<u32>>(x) | ((c & vec4<u32>(128u)) << vec4<u32>(24u)));
}}",
        one - 1
    )
}

/// What a plane is read by.
fn plane_element(width: u32) -> &'static str {
    match width {
        8 => "vec4<u32>",
        4 => "vec2<u32>",
        _ => "u32",
    }
}

/// 16 numbers, two of them a word.
fn pairs(v: &str, two: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    for half in 0..2 {
        for (j, [a, b]) in [["x", "y"], ["z", "w"]].iter().enumerate() {
            let [a, b] = [a, b].map(|c| two(&format!("{v}w{half}.{c}")));
            text += &format!("let {v}{} = vec4<f32>({a}, {b});\n", half * 2 + j);
        }
    }
    text
}

/// Scales are brought down by this so that products with codes stay in half precision; results are brought up again.
pub const HALF_SCALE: f32 = 256.0;

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
