//! Rows by expert, for products of many rows: those of an expert lie together, in tiles of one height.
//!
//! What a row gives to one of its experts is an entry, number `row * used + slot`. The order holds the entries of expert 0,
//! rising, filled up to whole tiles with [`NOBODY`], then those of expert 1, and so on. How the rows divide among the
//! experts changes how many tiles there are, not how many calls: a call has as many workgroups as there can be tiles.

use crate::{
    selfcheck::Arrange,
    shader::{Shader, Source},
};

/// What a place of the order holds that is no entry.
pub const NOBODY: u32 = u32::MAX;

const THREADS: u32 = 256;

/// The tiles that `entries` entries of `experts` experts can take.
pub fn most_tiles(entries: usize, experts: usize, height: usize) -> usize {
    entries.div_ceil(height) + experts.min(entries)
}

/// WGSL of the expert of entry `i`.
fn expert(s: &mut Source, used: usize) {
    s.read("route", "f32");
    s.item(&format!(
        "fn expert(i: u32) -> u32 {{ return u32(route[(2u * (i / {used}u) + 1u) * {used}u + i % {used}u]); }}"
    ));
    s.shared("partial", "u32", THREADS as usize);
}

/// Leaves in `partial[0]` the sum of `value` over the workgroup.
fn sum(value: &str) -> String {
    let mut text = format!("partial[local] = {value};\n");
    for width in (0..THREADS.ilog2()).rev().map(|bit| 1u32 << bit) {
        text += &format!(
            "workgroupBarrier();\nif local < {width}u {{ partial[local] += partial[local + {width}u]; }}\n"
        );
    }
    text + "workgroupBarrier();\n"
}

/// How many entries each expert has. Bindings: route, counts. Grid: experts.
pub fn count(used: usize) -> Shader {
    let mut s = Source::new("count entries", THREADS);
    expert(&mut s, used);
    s.write("counts", "u32");
    s.build(&format!(
        "var mine = 0u;
for (var i = local; i < p.rows * {used}u; i += {THREADS}u) {{ mine += u32(expert(i) == group.x); }}
{}if local == 0u {{ counts[group.x] = partial[0]; }}",
        sum("mine")
    ))
}

/// Puts the entries in order. Bindings: route, counts, tiles (how many there are, then the expert of each), order.
/// Grid: experts.
pub fn arrange(used: usize, experts: usize, height: usize) -> Shader {
    let mut s = Source::new("arrange entries", THREADS);
    expert(&mut s, used);
    s.read("counts", "u32");
    s.write("tiles", "u32");
    s.write("order", "u32");
    let mut body = format!(
        "var before = 0u;
for (var e = local; e < group.x; e += {THREADS}u) {{ before += (counts[e] + {height}u - 1u) / {height}u; }}
{}let first = partial[0];
workgroupBarrier();
// Neighbouring entries are one invocation's, so that they stay in order.
let entries = p.rows * {used}u;
let share = (entries + {THREADS}u - 1u) / {THREADS}u;
let start = local * share;
let end = min(start + share, entries);
var mine = 0u;
for (var i = start; i < end; i += 1u) {{ mine += u32(expert(i) == group.x); }}
partial[local] = mine;\n",
        sum("before")
    );
    for width in (0..THREADS.ilog2()).map(|bit| 1u32 << bit) {
        body += &format!(
            "workgroupBarrier();
let add{width} = select(0u, partial[max(local, {width}u) - {width}u], local >= {width}u);
workgroupBarrier();
partial[local] += add{width};\n"
        );
    }
    body += &format!(
        "var at = first * {height}u + partial[local] - mine;
for (var i = start; i < end; i += 1u) {{
if expert(i) == group.x {{ order[at] = i; at += 1u; }}
}}
let own = counts[group.x];
let here = (own + {height}u - 1u) / {height}u;
for (var i = own + local; i < here * {height}u; i += {THREADS}u) {{ order[first * {height}u + i] = {NOBODY}u; }}
for (var i = local; i < here; i += {THREADS}u) {{ tiles[1u + first + i] = group.x; }}
if group.x == {experts}u - 1u && local == 0u {{ tiles[0] = first + here; }}"
    );
    s.build(&body).with(Arrange { used, experts, height })
}
