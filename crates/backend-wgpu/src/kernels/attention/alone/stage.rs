//! What a workgroup needs before it scores: its queries, and the row's own key and value.

use super::{Alone, PAGE, Shape, THREADS, heads};
use crate::{kernels::kv::Turn, shader::Source};

/// Queries, and for the last run the row's own key and value as the bank keeps them, which go there.
pub(super) fn stage(s: &mut Source, k: &Alone<'_>, shape: &Shape) -> String {
    let (a, bank) = (k.op, k.bank);
    let layer = bank.layer;
    let mut text = format!(
        "let key_base = (group.y * {kv}u + kv_head) * {key}u;
let value_base = (group.y * {kv}u + kv_head) * {value}u;
let query_base = (group.y * {all}u + first_head) * {key}u;\n",
        kv = layer.kv_heads,
        key = layer.key_dim,
        value = layer.value_dim,
        all = a.heads,
    );
    let [of_query, of_key] = head_scales(s, k.turn, layer.key_dim, shape.g, &mut text);
    text += &format!(
        "for (var e = local; e < {queries}u; e += {THREADS}u) {{
let head = e / {key}u;
{of_query}query[e / 4u][e % 4u] = turned_q(query_base + head * {key}u, e % {key}u) * {scale:?};
}}
if local < {g}u {{ most_of[local] = -1e30; total_of[local] = 0.0; }}
if is_last {{\n",
        queries = shape.g * layer.key_dim as u32,
        key = layer.key_dim,
        scale = a.scale,
        g = shape.g,
    );
    let [key_words, value_words] = bank.row_words();
    let own = [
        ("own_key", key_words, bank.unit(), "key_base", bank.word(s, "turned_k", layer.key_dim), of_key),
        (
            "own_value",
            value_words,
            bank.value_unit(),
            "value_base",
            bank.word(s, "plain_v", layer.value_dim),
            String::new(),
        ),
    ];
    for (name, words, unit, base, word, scale) in own {
        text += &format!(
            "for (var w = local; w < {words}u; w += {THREADS}u) {{
let base = {base};
let i = w * {}u;
{scale}{name}[w / {unit}u][w % {unit}u] = {word};
}}\n",
            bank.per_word
        );
    }
    let ([key_page, value_page], [key_head, value_head]) = (bank.page_words(), bank.head_words());
    let (key_unit, value_unit) = (bank.unit(), bank.value_unit());
    text + &format!(
        "}}
workgroupBarrier();
if is_last && group.x % {groups}u == 0u {{
let to = pages[table + own_page];
for (var u = local; u < {key_units}u; u += {THREADS}u) {{
keys[(to * {key_page}u + kv_head * {key_head}u) / {key_unit}u + u * {PAGE}u + own_at] = own_key[u];
}}
for (var u = local; u < {columns}u; u += {THREADS}u) {{
values[(to * {value_page}u + kv_head * {value_head}u) / {value_unit}u + own_at * {columns}u + u] = own_value[u];
}}
}}\n",
        groups = heads(a, bank).groups,
        key_units = key_words / key_unit,
        columns = shape.columns,
    )
}

/// Leaves in `scale_of` by what the heads of a workgroup and its key are multiplied if their norms are applied here; returns
/// statements that choose that of query `head`, and of the key.
fn head_scales(s: &mut Source, turn: Option<&Turn>, dim: usize, g: u32, text: &mut String) -> [String; 2] {
    let Some([q_eps, k_eps]) = turn.and_then(|turn| turn.norms) else { return Default::default() };
    s.shared("scale_of", "f32", g as usize + 1);
    *text += &format!(
        "for (var i = sub; i <= {g}u; i += subs) {{
var squares = 0.0;
for (var d = lane; d < {dim}u; d += lanes) {{
var x = 0.0;
if i == {g}u {{ x = k[key_base + d]; }} else {{ x = q[query_base + i * {dim}u + d]; }}
squares = fma(x, x, squares);
}}
let all = subgroupAdd(squares);
let eps = select(f32({:?}), f32({:?}), i == {g}u);
if lane == 0u {{ scale_of[i] = inverseSqrt(all / f32({dim}u) + eps); }}
}}
workgroupBarrier();\n",
        q_eps.get(),
        k_eps.get()
    );
    ["head".to_string(), format!("{g}u")].map(|i| format!("head_scale = scale_of[{i}];\n"))
}
