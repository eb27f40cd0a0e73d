//! The shape rule of each op: what it needs, and the width of what it makes.

use crate::{Graph, Op, Rows, Value, WeightId};

/// What is wrong: (expected, found).
type Mismatch = (String, String);

fn need(ok: bool, expected: impl Into<String>, found: impl ToString) -> Result<(), Mismatch> {
    if ok { Ok(()) } else { Err((expected.into(), found.to_string())) }
}

fn list(dims: &[usize]) -> String {
    format!("{dims:?}")
}

/// Checks `op` on its inputs and weights; returns rows and width of the result.
pub(crate) fn shape(
    g: &Graph,
    op: &Op,
    inputs: &[Value],
    weights: &[WeightId],
) -> Result<(Rows, usize), Mismatch> {
    let known = |v: &Value| (v.0 as usize) < g.nodes.len();
    need(inputs.iter().all(known), "inputs made by earlier nodes", list_values(inputs))?;
    let (min, max, n_weights) = arity(op);
    need(inputs.len() == min, format!("{min} inputs"), inputs.len())?;
    need((n_weights..=max).contains(&weights.len()), format!("{n_weights} weights"), weights.len())?;
    let rows = inputs.first().map_or(Rows::Tokens, |&v| g.node(v).rows);
    need(inputs.iter().all(|&v| g.node(v).rows == rows), "inputs with the same rows", "both kinds")?;
    let width = |i: usize| g.node(inputs[i]).width;
    let dims = |i: usize| g.weight(weights[i]).data.shape();
    let same = |i: usize, w: usize| {
        need(width(i) == w, format!("input {i} of width {w}"), format!("width {}", width(i)))
    };

    let width = match op {
        Op::Tokens => 1,
        Op::Given { width } => *width,
        Op::Embed => {
            need(matches!(g.node(inputs[0]).op, Op::Tokens), "tokens", g.node(inputs[0]).op.name())?;
            need(dims(0).dims().len() == 2, "a weight [V, D]", dims(0))?;
            dims(0).row_len()
        }
        Op::Matmul => {
            let k = width(0);
            need(dims(0).dims().len() == 2 && dims(0).row_len() == k, format!("a weight [N, {k}]"), dims(0))?;
            dims(0).rows()
        }
        Op::Bias => {
            need(dims(0).dims() == [width(0)], format!("a weight [{}]", width(0)), dims(0))?;
            width(0)
        }
        Op::Gain => {
            let ok = dims(0).dims() == [width(0)] || dims(0).dims() == [1];
            need(ok, format!("a weight [{}] or [1]", width(0)), dims(0))?;
            width(0)
        }
        Op::Add | Op::Mul | Op::Gated(_) => {
            same(1, width(0))?;
            width(0)
        }
        Op::Scale(_) | Op::Activate(_) | Op::SoftCap(_) => width(0),
        Op::RmsNorm { .. } => {
            let group = dims(0).elements();
            let ok = dims(0).dims().len() == 1 && group > 0 && width(0) % group == 0;
            need(ok, format!("a weight whose length divides {}", width(0)), dims(0))?;
            width(0)
        }
        Op::L2Norm { group, .. } => {
            need(*group > 0 && width(0) % group == 0, format!("a group that divides {}", width(0)), group)?;
            width(0)
        }
        Op::Slice { group, start, len } => {
            let ok = *group > 0 && width(0) % group == 0 && start + len <= *group && *len > 0;
            let found = format!("{start}..{} of {group}", start + len);
            need(ok, format!("columns inside a group that divides {}", width(0)), found)?;
            width(0) / group * len
        }
        Op::Columns => {
            let inside = |&c: &f32| c == -1.0 || c >= 0.0 && c.fract() == 0.0 && (c as usize) < width(0);
            let list = dims(0);
            need(list.dims().len() == 1 && list.elements() > 0, "a weight [N]", list)?;
            let wrong = g.weight(weights[0]).data.decode().into_iter().find(|c| !inside(c));
            if let Some(column) = wrong {
                return Err((format!("columns from -1 to {}", width(0) - 1), column.to_string()));
            }
            list.elements()
        }
        Op::Hadamard { block } => {
            let ok = block.is_power_of_two() && width(0) % block == 0;
            need(ok, format!("a power of two that divides {}", width(0)), block)?;
            width(0)
        }
        Op::Rope(r) => {
            let ok = r.head_dim > 0 && width(0) % r.head_dim == 0;
            need(ok, format!("a head size that divides {}", width(0)), r.head_dim)?;
            let ok = r.dims % 2 == 0 && r.dims > 0 && r.dims <= r.head_dim;
            need(ok, format!("an even number of turning dimensions up to {}", r.head_dim), r.dims)?;
            if let crate::Frequencies::Fixed(inverse) = &r.frequencies {
                need(inverse.len() * 2 == r.dims, format!("{} frequencies", r.dims / 2), inverse.len())?;
            }
            width(0)
        }
        Op::Attention(a) => {
            let layer = g.kv_layers.get(a.cache);
            let layer = *layer.ok_or_else(|| ("a cache layer".into(), a.cache.to_string()))?;
            let ok = layer.kv_heads > 0 && a.heads > 0 && a.heads % layer.kv_heads == 0;
            need(ok, format!("heads in multiples of {}", layer.kv_heads), a.heads)?;
            need(a.window != Some(0), "a window of at least 1", 0)?;
            same(0, a.heads * layer.key_dim)?;
            same(1, layer.kv_heads * layer.key_dim)?;
            same(2, layer.kv_heads * layer.value_dim)?;
            if !weights.is_empty() {
                need(dims(0).dims() == [a.heads], format!("sinks [{}]", a.heads), dims(0))?;
            }
            a.heads * layer.value_dim
        }
        Op::ShortConv { state } => {
            let ok = dims(0).dims().len() == 2 && dims(0).dims()[0] == width(0) && dims(0).row_len() > 0;
            need(ok, format!("a weight [{}, kernel]", width(0)), dims(0))?;
            state_len(g, *state, (dims(0).row_len() - 1) * width(0))?;
            width(0)
        }
        Op::GatedDelta(d) => {
            let ok = d.key_heads > 0 && d.value_heads > 0 && d.value_heads % d.key_heads == 0;
            need(ok, format!("value heads in multiples of {}", d.key_heads), d.value_heads)?;
            same(0, d.key_heads * d.key_dim)?;
            same(1, d.key_heads * d.key_dim)?;
            same(2, d.value_heads * d.value_dim)?;
            same(3, d.value_heads)?;
            same(4, d.value_heads)?;
            state_len(g, d.state, d.value_heads * d.key_dim * d.value_dim)?;
            d.value_heads * d.value_dim
        }
        Op::Route(r) => {
            let experts = width(0);
            need((1..=experts).contains(&r.used), format!("1 to {experts} experts used"), r.used)?;
            if !weights.is_empty() {
                need(dims(0).dims() == [experts], format!("a bias [{experts}]"), dims(0))?;
            }
            2 * r.used
        }
        Op::ExpertMatmul { used } => {
            same(1, 2 * used)?;
            need(dims(0).dims().len() == 3, "a weight [E, N, K]", dims(0))?;
            let k = dims(0).row_len();
            let ok = width(0) == k || width(0) == used * k;
            need(ok, format!("an input of width {k} or {}", used * k), width(0))?;
            used * dims(0).dims()[1]
        }
        Op::ExpertBias { used } => {
            same(1, 2 * used)?;
            let ok = dims(0).dims().len() == 2 && dims(0).row_len() * used == width(0) && *used > 0;
            need(ok, format!("a weight [E, {}]", width(0) / used.max(&1)), dims(0))?;
            width(0)
        }
        Op::Combine { used } => {
            same(1, 2 * used)?;
            need(*used > 0 && width(0) % used == 0, format!("an input of {used} parts"), width(0))?;
            width(0) / used
        }
        Op::Wanted => {
            need(rows == Rows::Tokens, "rows of tokens", "wanted rows")?;
            return Ok((Rows::Wanted, width(0)));
        }
    };
    Ok((rows, width))
}

/// Number of inputs, most weights, fewest weights.
fn arity(op: &Op) -> (usize, usize, usize) {
    match op {
        Op::Tokens | Op::Given { .. } => (0, 0, 0),
        Op::Embed
        | Op::Matmul
        | Op::Bias
        | Op::Gain
        | Op::RmsNorm { .. }
        | Op::ShortConv { .. }
        | Op::Columns => (1, 1, 1),
        Op::Add | Op::Mul | Op::Gated(_) | Op::Combine { .. } => (2, 0, 0),
        Op::Attention(_) => (3, 1, 0),
        Op::GatedDelta(_) => (5, 0, 0),
        Op::Route(_) => (1, 1, 0),
        Op::ExpertMatmul { .. } | Op::ExpertBias { .. } => (2, 1, 1),
        Op::Scale(_)
        | Op::Activate(_)
        | Op::SoftCap(_)
        | Op::L2Norm { .. }
        | Op::Slice { .. }
        | Op::Hadamard { .. }
        | Op::Rope(_)
        | Op::Wanted => (1, 0, 0),
    }
}

fn state_len(g: &Graph, state: usize, len: usize) -> Result<(), Mismatch> {
    let found = g.state_layers.get(state).map(|s| s.len);
    need(found == Some(len), format!("a state layer of {len} numbers"), format!("{found:?}"))
}

fn list_values(values: &[Value]) -> String {
    list(&values.iter().map(|v| v.0 as usize).collect::<Vec<_>>())
}
