//! The bank of keys and values, one pair of buffers a layer.
//!
//! Keys of a page and a head: `[key_dim / unit][64 positions][unit]`, so that invocations, one a position, read
//! neighbouring words; values: `[64 positions][value_dim]`. Numbers are f32, f16 two in a word, or codes (`kv_blocks`).

use super::{kv_blocks::BLOCK, norm::sum_of};
use crate::shader::{Shader, Source};
use nibble_backend::KvType;
use nibble_graph::{KvLayer, RopeLayout};

/// `in_half(x)`: what half precision holds at most, but what is infinite or no number stays so, as logits must show it.
pub const IN_HALF: &str = "fn in_half(x: f32) -> f32 {
return select(clamp(x, -65504.0, 65504.0), x, (bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u);
}";

/// Positions in a page.
pub const PAGE: u32 = nibble_backend::PAGE_LEN as u32;

/// Where numbers of a layer lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bank {
    /// Heads and sizes.
    pub layer: KvLayer,
    /// How numbers are kept.
    pub kv: KvType,
    /// Numbers in a word.
    pub per_word: usize,
}

impl Bank {
    /// The layout of a layer.
    pub fn new(layer: KvLayer, kv: KvType) -> Self {
        let per_word = match kv {
            KvType::F32 => 1,
            KvType::F16 => 2,
            KvType::Q8_0 => 4,
            KvType::Q4_0 => 8,
        };
        Self { layer, kv, per_word }
    }

    /// Whether numbers are codes of blocks.
    pub fn is_blocks(&self) -> bool {
        matches!(self.kv, KvType::Q8_0 | KvType::Q4_0)
    }

    /// Whether heads are turned by a Hadamard transform before they are rounded.
    pub fn rotates(&self) -> bool {
        self.kv == KvType::Q4_0
    }

    /// Numbers of a key, of a value, filled up to whole words and blocks.
    pub fn padded(&self) -> [usize; 2] {
        let whole = if self.is_blocks() { BLOCK } else { self.per_word };
        [self.layer.key_dim, self.layer.value_dim].map(|dim| dim.next_multiple_of(whole))
    }

    /// Words of the numbers or codes of a key, of a value.
    pub fn row_words(&self) -> [u32; 2] {
        self.padded().map(|numbers| (numbers / self.per_word) as u32)
    }

    /// Words of the scales of a key, of a value.
    pub fn scale_words(&self) -> [u32; 2] {
        self.padded().map(|numbers| if self.is_blocks() { (numbers / BLOCK).div_ceil(2) as u32 } else { 0 })
    }

    /// Words of one head of a page of keys, of values.
    pub fn head_words(&self) -> [u32; 2] {
        let ([key, value], [key_scales, value_scales]) = (self.row_words(), self.scale_words());
        [(key + key_scales) * PAGE, (value + value_scales) * PAGE]
    }

    /// Words of a page of keys, of values: all heads.
    pub fn page_words(&self) -> [u32; 2] {
        self.head_words().map(|head| head * self.layer.kv_heads as u32)
    }

    /// Words of a key that lie together: 4, 2 or 1, of 8 numbers at most.
    pub fn unit(&self) -> u32 {
        self.unit_of(self.row_words()[0])
    }

    /// Words of a value that are read together, as of a key.
    pub fn value_unit(&self) -> u32 {
        self.unit_of(self.row_words()[1])
    }

    fn unit_of(&self, row: u32) -> u32 {
        let fits = |unit: &u32| row.is_multiple_of(*unit) && *unit as usize * self.per_word <= 8;
        [4, 2, 1].into_iter().find(fits).expect("1 divides")
    }

    /// WGSL of the word of numbers `i` (an expression, a multiple of the numbers in a word) of a head with `dim` of them,
    /// each read by `number(i)`, filled up with zero.
    pub fn word(&self, s: &mut Source, number: &str, dim: usize) -> String {
        if self.per_word == 1 {
            return format!("bitcast<u32>({number}(base, i))");
        }
        s.item(IN_HALF);
        format!(
            "pack2x16float(vec2<f32>(in_half({number}(base, i)), \
             select(0.0, in_half({number}(base, min(i + 1u, {dim}u - 1u))), i + 1u < {dim}u)))"
        )
    }
}

/// How queries and keys turn on their way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Which numbers of a head turn together.
    pub layout: RopeLayout,
    /// How many turn.
    pub dims: usize,
    /// Whether the table has a row for each row of the step, not for each position.
    pub by_row: bool,
    /// Heads of queries.
    pub heads: usize,
    /// Epsilons of norms of the heads of queries and of keys before they turn.
    pub norms: Option<[HeadEps; 2]>,
}

/// Bits of an epsilon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadEps(u32);

impl From<f32> for HeadEps {
    fn from(eps: f32) -> Self {
        Self(eps.to_bits())
    }
}

impl HeadEps {
    /// The epsilon.
    pub fn get(self) -> f32 {
        f32::from_bits(self.0)
    }
}

/// WGSL of `turned_{name}(base, d)`: number `d` of the head at `base` of an array, normed if heads are, and turned.
pub fn turned(name: &str, turn: &Turn) -> String {
    let half = turn.dims / 2;
    let (pair, first, other) = match turn.layout {
        RopeLayout::Split => (
            format!("d % {half}u"),
            format!("d < {half}u"),
            format!("select(d - {half}u, d + {half}u, first)"),
        ),
        RopeLayout::Interleaved => {
            ("d / 2u".into(), "d % 2u == 0u".into(), "select(d - 1u, d + 1u, first)".into())
        }
    };
    let normed = if turn.norms.is_some() { format!(" * head_scale * {name}_norm[d]") } else { String::new() };
    format!(
        "fn number_{name}(base: u32, d: u32) -> f32 {{ return {name}[base + d]{normed}; }}
fn turned_{name}(base: u32, d: u32) -> f32 {{
let v = number_{name}(base, d);
if d >= {dims}u {{ return v; }}
let turn = turns[turn_row * {half}u + {pair}];
let first = {first};
let o = number_{name}(base, {other});
return fma(v, turn.x, select(o, -o, first) * turn.y);
}}",
        dims = turn.dims
    )
}

/// Declares what every kernel that writes rows into their pages reads and writes, up to the table of turns, with the types of the words
/// of keys and values; returns statements that come after `place`, the row of the step.
pub fn declare(s: &mut Source, turn: Option<&Turn>, [keys, values]: [&str; 2]) -> String {
    s.read("step", "vec4<u32>");
    s.read("sequences", "vec4<u32>");
    s.read("pages", "u32");
    s.read("k", "f32");
    s.read("v", "f32");
    s.write("keys", keys);
    s.write("values", values);
    let Some(turn) = turn else { return String::new() };
    s.read("turns", "vec2<f32>");
    if turn.norms.is_some() {
        s.read("q_norm", "f32");
        s.read("k_norm", "f32");
        s.item("var<private> head_scale: f32;");
    }
    s.item("var<private> turn_row: u32;");
    format!("turn_row = {};\n", if turn.by_row { "group.y" } else { "place.y" })
}

/// Statements that all of `threads` invocations need before they read the head at `base` of queries or of keys, of `dim` numbers: none
/// unless heads are normed.
pub fn scales(s: &mut Source, turn: Option<&Turn>, dim: usize, threads: u32) -> [String; 2] {
    let Some(norms) = turn.and_then(|turn| turn.norms) else { return Default::default() };
    let sum = sum_of(s, threads, "squares");
    [("q", norms[0]), ("k", norms[1])].map(|(name, eps)| {
        format!(
            "var squares = 0.0;
for (var i = local; i < {dim}u; i += {threads}u) {{ squares = fma({name}[base + i], {name}[base + i], squares); }}
{sum}head_scale = inverseSqrt(total / f32({dim}u) + f32({:?}));\n",
            eps.get()
        )
    })
}

/// Writes the rows of a step into their pages as they are; with `turn`, turns keys, and queries too. Bindings: step rows, sequences,
/// pages, k, v, keys, values, then the table of turns, weights of the norms of q and k, q, turned q. Grid: blocks of 64 words of a
/// row (keys, values, then numbers of queries), rows; if heads are normed, heads of keys, of values, of queries.
pub fn write(bank: &Bank, turn: Option<&Turn>) -> Shader {
    if let Some(turn) = turn.filter(|turn| turn.norms.is_some()) {
        return write_heads(bank, turn);
    }
    let mut s = Source::new("kv_write", 64);
    let prepare = declare(&mut s, turn, ["u32"; 2]);
    let KvLayer { kv_heads, key_dim, value_dim } = bank.layer;
    let ([key, value], [key_page, value_page]) = (bank.row_words(), bank.page_words());
    let (unit, per_word) = (bank.unit(), bank.per_word);
    s.item("fn plain_v(base: u32, d: u32) -> f32 { return v[base + d]; }");
    let mut queries = String::new();
    let all = (key + value) as usize * kv_heads;
    let (keys, values) = match turn {
        None => {
            s.item("fn plain_k(base: u32, d: u32) -> f32 { return k[base + d]; }");
            (bank.word(&mut s, "plain_k", key_dim), bank.word(&mut s, "plain_v", value_dim))
        }
        Some(turn) => {
            s.read("q", "f32");
            s.write("turned", "f32");
            s.item(&turned("k", turn));
            s.item(&turned("q", turn));
            let width = turn.heads * key_dim;
            queries = format!(
                "if n >= {all}u {{
let at = n - {all}u;
if at < {width}u {{
let base = group.y * {width}u + at / {key_dim}u * {key_dim}u;
turned[base + at % {key_dim}u] = turned_q(base, at % {key_dim}u);
}}
return;
}}\n"
            );
            (bank.word(&mut s, "turned_k", key_dim), bank.word(&mut s, "plain_v", value_dim))
        }
    };
    s.build(&format!(
        "let n = group.x * 64u + local;
let place = step[group.y];
{prepare}{queries}if n >= {all}u {{ return; }}
let page = pages[sequences[place.z * 2u].x + place.y / {PAGE}u];
let position = place.y % {PAGE}u;
if n < {key_words}u {{
let head = n / {key}u;
let w = n % {key}u;
let base = group.y * {k_width}u + head * {key_dim}u;
let i = w * {per_word}u;
keys[page * {key_page}u + head * {head_keys}u + (w / {unit}u * {PAGE}u + position) * {unit}u + w % {unit}u] = {keys};
}} else {{
let m = n - {key_words}u;
let head = m / {value}u;
let w = m % {value}u;
let base = group.y * {v_width}u + head * {value_dim}u;
let i = w * {per_word}u;
values[page * {value_page}u + (head * {PAGE}u + position) * {value}u + w] = {values};
}}",
        key_words = key as usize * kv_heads,
        k_width = kv_heads * key_dim,
        v_width = kv_heads * value_dim,
        head_keys = key * PAGE,
    ))
}

/// [`write`], head by head.
fn write_heads(bank: &Bank, turn: &Turn) -> Shader {
    let mut s = Source::new("kv_write_heads", 64);
    let prepare = declare(&mut s, Some(turn), ["u32"; 2]);
    s.read("q", "f32");
    s.write("turned", "f32");
    s.item("fn plain_v(base: u32, d: u32) -> f32 { return v[base + d]; }");
    s.item(&turned("k", turn));
    s.item(&turned("q", turn));
    let KvLayer { kv_heads, key_dim, value_dim } = bank.layer;
    let ([key, value], [key_page, value_page]) = (bank.row_words(), bank.page_words());
    let (unit, per_word) = (bank.unit(), bank.per_word);
    let [scale_q, scale_k] = scales(&mut s, Some(turn), key_dim, 64);
    let [keys, values] =
        [("turned_k", key_dim), ("plain_v", value_dim)].map(|(of, dim)| bank.word(&mut s, of, dim));
    s.build(&format!(
        "let place = step[group.y];
{prepare}if group.x >= {both}u {{
let base = (group.y * {heads}u + group.x - {both}u) * {key_dim}u;
{scale_q}for (var d = local; d < {key_dim}u; d += 64u) {{ turned[base + d] = turned_q(base, d); }}
return;
}}
let page = pages[sequences[place.z * 2u].x + place.y / {PAGE}u];
let position = place.y % {PAGE}u;
if group.x < {kv_heads}u {{
let base = (group.y * {kv_heads}u + group.x) * {key_dim}u;
let to = page * {key_page}u + group.x * {head_keys}u;
{scale_k}for (var w = local; w < {key}u; w += 64u) {{
let i = w * {per_word}u;
keys[to + (w / {unit}u * {PAGE}u + position) * {unit}u + w % {unit}u] = {keys};
}}
}} else {{
let head = group.x - {kv_heads}u;
let base = (group.y * {kv_heads}u + head) * {value_dim}u;
let to = page * {value_page}u + (head * {PAGE}u + position) * {value}u;
for (var w = local; w < {value}u; w += 64u) {{
let i = w * {per_word}u;
values[to + w] = {values};
}}
}}",
        both = 2 * kv_heads,
        heads = turn.heads,
        head_keys = key * PAGE,
    ))
}
