//! Causal attention of many rows at once, on cooperative matrices.
//!
//! A workgroup takes one head and a tile of rows; each subgroup as many of these as a matrix has. Block by block of the
//! bank, scores are a product of matrices, weights are made of them in workgroup memory, and sums stay in matrices. These
//! cannot be scaled in place, so a row's weights refer to a maximum that is only renewed when a score passes it by far:
//! seldom, after the first block.
//!
//! Rows of several sequences in one tile are worked on one sequence after the other.

use super::{declare_sinks, sink};
use crate::{
    kernels::{
        chain,
        gemm::Tiles,
        kv::{Bank, IN_HALF, PAGE},
    },
    shader::{Shader, Source},
};
use nibble_backend::KvType;
use nibble_graph::{Activation, Attention};

/// Subgroups of a workgroup.
const SUBS: usize = 4;

/// How far a score may pass the maximum that weights refer to: their exponentials stay within half precision.
const SLACK: f32 = 8.0;

/// A kernel's sizes.
#[derive(Clone, Copy, Debug)]
struct Sizes {
    side: usize,
    lanes: usize,
    key: usize,
    value: usize,
    /// Positions of a block.
    block: usize,
    vectors: bool,
}

impl Sizes {
    /// Lanes that share a row, and columns of a block that each takes.
    fn split(&self) -> (usize, usize) {
        let lanes = self.lanes / self.side;
        (lanes, self.block / lanes)
    }

    /// Numbers in a row of scores, of weights, of keys or values, in workgroup memory.
    fn strides(&self) -> [usize; 4] {
        [self.block + 4, self.block + 8, self.key + 8, self.value + 8]
    }

    fn bytes(&self) -> usize {
        let [scores, weights, key, value] = self.strides();
        SUBS * self.side * (4 * scores + 2 * weights + 4) + 2 * self.block * key.max(value) + 16
    }
}

/// Rows of a workgroup, if there is a kernel for this attention.
pub fn rows(bank: &Bank, tiles: &Tiles) -> Option<usize> {
    sizes(bank, tiles).map(|sizes| SUBS * sizes.side)
}

fn sizes(bank: &Bank, tiles: &Tiles) -> Option<Sizes> {
    let (key, value, side) = (bank.layer.key_dim, bank.layer.value_dim, tiles.side);
    let fits = bank.kv == KvType::F16 && key.is_multiple_of(side) && value.is_multiple_of(side);
    let shares = tiles.lanes.is_multiple_of(side) && tiles.lanes / side <= 8;
    let blocks: &[usize] = if side == 16 { &[64, 32] } else { &[32, 16] };
    let sizes =
        |&block: &usize| Sizes { side, lanes: tiles.lanes, key, value, block, vectors: tiles.vectors };
    let mut all = blocks.iter().map(sizes).filter(|s| s.bytes() <= tiles.workgroup);
    all.next().filter(|_| fits && shares)
}

/// Bindings: step rows, sequences, pages, q, keys, values, y. Grid: heads, rows / [`rows`].
///
/// # Panics
/// If [`rows`] says that there is none.
pub fn attend(a: &Attention, bank: &Bank, tiles: &Tiles, sinks: bool) -> Shader {
    let z = sizes(bank, tiles).expect("asked for by rows()");
    let (side, block) = (z.side, z.block);
    let [score, weight, key, value] = z.strides();
    let mut s = Source::new("attention tiles", (z.lanes * SUBS) as u32);
    s.enable("f16");
    s.enable("wgpu_cooperative_matrix");
    s.subgroups();
    s.read("step", "vec4<u32>");
    s.read("sequences", "vec4<u32>");
    s.read("pages", "u32");
    s.read("q", "f32");
    s.read("keys", "vec4<f16>");
    s.read("values", "vec4<f16>");
    s.write("y", "f32");
    if sinks {
        declare_sinks(&mut s);
    }
    let (unit, element) = if z.vectors { (4, "vec4<f16>") } else { (1, "f16") };
    s.shared("kt", element, block * key.max(value) / unit);
    s.shared("st", "f32", SUBS * side * score);
    s.shared("pt", "f16", SUBS * side * weight);
    s.shared("factor", "f32", SUBS * side);
    s.shared("grown", "u32", 1);
    s.shared("bad", "u32", 1);
    let (share, columns) = z.split();
    let mut body = format!(
        "let head = group.x;
let kv_head = head / {per}u;
let m0 = group.y * {tile}u;
let own = m0 + sub * {side}u + lane / {share}u;
let part = lane % {share}u;
let place = step[min(own, p.rows - 1u)];
let scores_at = sub * {0}u;
let weights_at = sub * {1}u;
var top = -1e30;
var total = 0.0;\n",
        side * score,
        side * weight,
        per = a.heads / bank.layer.kv_heads,
        tile = SUBS * side,
    );
    body += &queries(&mut s, &z, a);
    for n in 0..z.value / side {
        body += &format!("var o{n} = coop_mat{side}x{side}<f32, C>();\n");
    }
    body += &format!(
        "let sequences_end = step[min(m0 + {tile}u, p.rows) - 1u].z + 1u;
let is_shared = step[m0].z + 1u < sequences_end;
for (var sequence = step[m0].z; sequence < sequences_end; sequence += 1u) {{
let span = sequences[sequence * 2u + 1u];
let table = sequences[sequence * 2u].x;
let low_row = step[max(span.x, m0)].y;
let end = step[min(min(span.x + span.y, m0 + {tile}u), p.rows) - 1u].y + 1u;
let is_own = own < p.rows && place.z == sequence;
for (var at = {begin} / {block}u * {block}u; at < end; at += {block}u) {{
let page = pages[table + at / {PAGE}u];
let offset = at % {PAGE}u;\n",
        tile = SUBS * side,
        begin =
            a.window.map_or("0u".into(), |w| format!("select(0u, low_row + 1u - {w}u, low_row + 1u > {w}u)")),
    );
    body += &stage_keys(&z, bank);
    body += "if local == 0u { grown[0] = 0u; bad[0] = 0u; }\nworkgroupBarrier();\n";
    body += &scores(&z);
    body += "workgroupBarrier();\n";
    body += &stage_values(&z, bank);
    body += &weights(&mut s, &z, a, columns);
    body += "if workgroupUniformLoad(&grown[0]) == 1u {\n";
    for n in 0..z.value / side {
        body += &through_memory(&z, n, &format!("st[i] *= factor[sub * {side}u + e / {side}u];\n"), true);
    }
    body += "}\n";
    body += "if is_own { total += bitcast<f32>(bad[0] * 0x7fc00000u); }\n";
    body += &sums(&z);
    body += "workgroupBarrier();\n}\n}\n";
    // The lanes of a row each know a part of its total.
    body += &across(share, "total", "+");
    body += &format!(
        "if part == 0u {{ factor[sub * {side}u + lane / {share}u] = total{}; }}\nworkgroupBarrier();\n",
        sink(sinks, "head", "top")
    );
    for n in 0..z.value / side {
        let store = format!(
            "let row = m0 + sub * {side}u + e / {side}u;
if row < p.rows {{ y[(row * {heads}u + head) * {dim}u + {at}u + e % {side}u] = st[i] / factor[sub * {side}u + e / {side}u]; }}\n",
            heads = a.heads,
            dim = z.value,
            at = n * side,
        );
        body += &through_memory(&z, n, &store, false);
    }
    s.build(&body)
}

/// Joins what the lanes of a row hold of `name`.
fn across(lanes: usize, name: &str, by: &str) -> String {
    let mut text = String::new();
    let mut step = 1;
    while step < lanes {
        let other = format!("subgroupShuffleXor({name}, {step}u)");
        text += &match by {
            "max" => format!("{name} = max({name}, {other});\n"),
            _ => format!("{name} = {name} {by} {other};\n"),
        };
        step *= 2;
    }
    text
}

/// Brings the tile's queries into matrices `qN`, by way of the memory for weights.
fn queries(s: &mut Source, z: &Sizes, a: &Attention) -> String {
    s.item(IN_HALF);
    let [_, weight, ..] = z.strides();
    let (side, block) = (z.side, z.block);
    let mut text = String::new();
    for first in (0..z.key).step_by(block) {
        let width = block.min(z.key - first);
        text += &format!(
            "for (var e = lane; e < {count}u; e += lanes) {{
let row = min(m0 + sub * {side}u + e / {width}u, p.rows - 1u);
pt[weights_at + e / {width}u * {weight}u + e % {width}u] = f16(in_half(q[(row * {heads}u + head) * {key}u + {first}u + e % {width}u] * {scale:?}));
}}
workgroupBarrier();\n",
            count = side * width,
            heads = a.heads,
            key = z.key,
            scale = a.scale,
        );
        for k in (0..width).step_by(side) {
            let n = (first + k) / side;
            text += &format!(
                "let q{n} = coopLoadT<coop_mat{side}x{side}<f16, A>>(&pt[weights_at + {k}u], {weight}u);\n"
            );
        }
        text += "workgroupBarrier();\n";
    }
    text
}

/// Writes a vector of four into workgroup memory.
fn store(z: &Sizes, at: &str, value: &str) -> String {
    if z.vectors {
        return format!("kt[({at}) / 4u] = {value};\n");
    }
    (0..4).map(|c| format!("kt[{at} + {c}u] = {value}[{c}];\n")).collect()
}

/// Keys of a block, position by position.
fn stage_keys(z: &Sizes, bank: &Bank) -> String {
    let ([words, _], [page, _], [.., stride, _]) = (bank.row_words(), bank.page_words(), z.strides());
    format!(
        "let keys_at = (page * {page}u + kv_head * {head}u) / 2u;
for (var i = local; i < {count}u; i += {threads}u) {{
let j = i / 2u % {block}u;
let u = i / {both}u;
let v = keys[keys_at + (u * {PAGE}u + offset + j) * 2u + i % 2u];
{store}}}\n",
        head = words * PAGE,
        count = z.block * z.key / 4,
        threads = z.lanes * SUBS,
        block = z.block,
        both = 2 * z.block,
        store = store(z, &format!("j * {stride}u + u * 8u + i % 2u * 4u"), "v"),
    )
}

/// Values of a block. What lies behind the tile's last row was never written. Rows of other sequences multiply them by 0, and what
/// is no number would show there too: in tiles of several sequences `bad` tells those of this one instead.
fn stage_values(z: &Sizes, bank: &Bank) -> String {
    let ([_, words], [_, page], [.., stride]) = (bank.row_words(), bank.page_words(), z.strides());
    let quarter = z.value / 4;
    format!(
        "let values_at = (page * {page}u + kv_head * {head}u) / 2u + offset * {quarter}u;
for (var i = local; i < {count}u; i += {threads}u) {{
var v = select(vec4<f16>(0.0h), values[values_at + i], at + i / {quarter}u < end);
if is_shared {{
let sizes = bitcast<vec4<u32>>(vec4<f32>(v)) & vec4<u32>(0x7fffffffu);
if max(max(sizes.x, sizes.y), max(sizes.z, sizes.w)) >= 0x7f800000u {{ v = vec4<f16>(0.0h); bad[0] = 1u; }}
}}
{store}}}\n",
        head = words * PAGE,
        count = z.block * quarter,
        threads = z.lanes * SUBS,
        store = store(z, &format!("i / {quarter}u * {stride}u + i % {quarter}u * 4u"), "v"),
    )
}

/// Scores of a block, row by row in `st`.
fn scores(z: &Sizes) -> String {
    let [score, _, stride, _] = z.strides();
    let (side, unit) = (z.side, if z.vectors { 4 } else { 1 });
    let mut text = String::new();
    for j in 0..z.block / side {
        text += &format!("var c{j} = coop_mat{side}x{side}<f32, C>();\n");
        for k in 0..z.key / side {
            text += &format!(
                "c{j} = coopMultiplyAdd(q{k}, coopLoad<coop_mat{side}x{side}<f16, B>>(&kt[{}u], {}u), c{j});\n",
                (j * side * stride + k * side) / unit,
                stride / unit
            );
        }
        text += &format!("coopStoreT(c{j}, &st[scores_at + {}u], {score}u);\n", j * side);
    }
    text
}

/// Weights of a block in `pt`; notes in `grown` and `factor` if sums must shrink.
fn weights(s: &mut Source, z: &Sizes, a: &Attention, columns: usize) -> String {
    let [score, weight, ..] = z.strides();
    let (share, _) = z.split();
    let side = z.side;
    let low = a.window.map_or("0".into(), |w| format!("max(i32(place.y) + 1 - {w} - i32(at), 0)"));
    let mut text = format!(
        "let high = select(-1, i32(place.y) - i32(at), is_own);
let low = {low};
let row_scores = scores_at + lane / {share}u * {score}u + part;
let row_weights = weights_at + lane / {share}u * {weight}u + part;
var most = -1e30;\n"
    );
    for i in 0..columns {
        let column = i * share;
        text += &format!(
            "let j{i} = i32(part) + {column};\nlet in{i} = j{i} <= high && j{i} >= low;\nvar v{i} = st[row_scores + {column}u];\n"
        );
        if let Some(cap) = a.soft_cap {
            let tanh = chain::activation(s, Activation::Tanh);
            text += &format!("v{i} = f32({cap:?}) * {tanh}(v{i} / f32({cap:?}));\n");
        }
        text += &format!("most = max(most, select(-1e30, v{i}, in{i}));\n");
    }
    text += &across(share, "most", "max");
    text += &format!(
        "var shrink = 1.0;
if most > top + {SLACK:?} {{
shrink = exp(top - most);
if top > -1e30 {{ grown[0] = 1u; }}
top = most;
}}
if part == 0u {{ factor[sub * {side}u + lane / {share}u] = shrink; }}
total *= shrink;\n"
    );
    for i in 0..columns {
        text += &format!(
            "let w{i} = select(0.0, exp(v{i} - top), in{i});
total += w{i};
pt[row_weights + {}u] = f16(w{i});\n",
            i * share
        );
    }
    text
}

/// Adds a block's weighted values.
fn sums(z: &Sizes) -> String {
    let [_, weight, _, stride] = z.strides();
    let (side, unit) = (z.side, if z.vectors { 4 } else { 1 });
    let mut text = String::new();
    for k in 0..z.block / side {
        text += &format!(
            "let w_{k} = coopLoadT<coop_mat{side}x{side}<f16, A>>(&pt[weights_at + {}u], {weight}u);\n",
            k * side
        );
        for n in 0..z.value / side {
            text += &format!(
                "o{n} = coopMultiplyAdd(w_{k}, coopLoadT<coop_mat{side}x{side}<f16, B>>(&kt[{}u], {}u), o{n});\n",
                (k * side * stride + n * side) / unit,
                stride / unit
            );
        }
    }
    text
}

/// Brings matrix `oN` of sums into `st`, does `work` on each number (`st[i]`, place `e` in the matrix), and takes it back.
fn through_memory(z: &Sizes, n: usize, work: &str, back: bool) -> String {
    let side = z.side;
    let area = side * side;
    let load = match back {
        true => format!(
            "o{n} = coopLoadT<coop_mat{side}x{side}<f32, C>>(&st[scores_at], {side}u);\nworkgroupBarrier();\n"
        ),
        false => String::new(),
    };
    format!(
        "coopStoreT(o{n}, &st[scores_at], {side}u);
workgroupBarrier();
for (var e = lane; e < {area}u; e += lanes) {{
let i = scores_at + e;
{work}}}
workgroupBarrier();
{load}"
    )
}
