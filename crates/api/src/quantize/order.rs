//! Where GGUF files have rows or columns in another order than other containers.

use crate::{Error, Kind};
use nibble_format::Metadata;

/// From which row and column of the source each one is taken; `None` where the order stays.
#[derive(Default)]
pub(super) struct Order {
    pub rows: Option<Vec<usize>>,
    pub columns: Option<Vec<usize>>,
}

/// How a tensor is reordered on its way into a GGUF file. `name` is canonical, without `layer.N.`; `dims` its shape.
///
/// # Errors
/// If a size is missing or does not divide what it must.
pub(super) fn order(name: &str, dims: &[usize], architecture: &str, m: &Metadata) -> Result<Order, Error> {
    let base = name.strip_suffix(".bias").unwrap_or(name);
    let map = match (architecture, base) {
        ("llama", "attn.q" | "attn.k") if m.find_text("rope.layout")? == Some("split") => {
            let heads = if base == "attn.q" { "attention.head_count" } else { "attention.head_count_kv" };
            Some(interleaved(name, dims, m.usize(heads)?, m.usize("rope.dimension_count")?)?)
        }
        (_, _) if base.starts_with("delta.") && m.find_text("ssm.v_order")? == Some("grouped") => {
            // One architecture has its value heads grouped in GGUF files too.
            if architecture == "qwen3next" { None } else { tiled(base, dims, m)? }
        }
        _ => None,
    };
    Ok(match map {
        None => Order::default(),
        Some(map) if dims.len() < 2 || base == "delta.out" => Order { rows: None, columns: Some(map) },
        Some(map) => Order { rows: Some(map), columns: None },
    })
}

/// From halves (i with i + half) to pairs (2i with 2i + 1) in each head; numbers past the rotated ones stay.
fn interleaved(name: &str, dims: &[usize], heads: usize, rotated: usize) -> Result<Vec<usize>, Error> {
    let rows = dims.first().copied().unwrap_or(0);
    if heads == 0 || rows % heads != 0 {
        let what = format!("tensor `{name}`: expected rows for {heads} heads, found {rows}");
        return Err(Error::new(Kind::Load, what));
    }
    let width = rows / heads;
    let half = rotated.min(width) / 2;
    let within = |i: usize| if i < 2 * half { i % 2 * half + i / 2 } else { i };
    Ok((0..rows).map(|row| row / width * width + within(row % width)).collect())
}

/// From value heads grouped by key head (v / r) to tiled (v % Hk).
fn tiled(base: &str, dims: &[usize], m: &Metadata) -> Result<Option<Vec<usize>>, Error> {
    let (keys, values) = (m.usize("ssm.group_count")?, m.usize("ssm.time_step_rank")?);
    let (key_width, inner) = (m.usize("ssm.state_size")?, m.usize("ssm.inner_size")?);
    if keys == values || keys == 0 || values == 0 || !values.is_multiple_of(keys) {
        return Ok(None);
    }
    let (width, before) = match base {
        "delta.qkv" | "delta.conv" => (inner / values, keys.saturating_mul(key_width).saturating_mul(2)),
        "delta.z" | "delta.out" => (inner / values, 0),
        "delta.a" | "delta.b" | "delta.dt_bias" | "delta.decay" => (1, 0),
        _ => return Ok(None),
    };
    let len = if base == "delta.out" { dims.last() } else { dims.first() };
    let expected = values.checked_mul(width).and_then(|moved| moved.checked_add(before));
    if len.is_none() || len.copied() != expected {
        return Ok(None); // of another shape than it must have, which the model refuses by name
    }
    let source = |head: usize| head % keys * (values / keys) + head / keys;
    let moved = (0..values * width).map(|row| before + source(row / width) * width + row % width);
    Ok(Some((0..before).chain(moved).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(keys: &[(&str, usize)]) -> Metadata {
        let mut m = Metadata::default();
        keys.iter().for_each(|(key, value)| m.set(key, *value));
        m
    }

    #[test]
    fn rotated_halves_become_pairs() {
        let mut m = metadata(&[("attention.head_count", 2), ("rope.dimension_count", 4)]);
        m.set("rope.layout", "split");
        let rows = order("attn.q", &[10, 3], "llama", &m).unwrap().rows.unwrap();
        assert_eq!(rows, [0, 2, 1, 3, 4, 5, 7, 6, 8, 9]);
        let bias = order("attn.q.bias", &[10], "llama", &m).unwrap();
        assert_eq!((bias.rows, bias.columns), (None, Some(rows)));
        assert!(order("attn.q", &[10, 3], "qwen2", &m).unwrap().rows.is_none());
    }

    #[test]
    fn grouped_value_heads_become_tiled() {
        let keys =
            [("ssm.group_count", 2), ("ssm.time_step_rank", 4), ("ssm.state_size", 1), ("ssm.inner_size", 8)];
        let mut m = metadata(&keys);
        m.set("ssm.v_order", "grouped");
        let rows = |name, dims: &[usize]| order(name, dims, "qwen35", &m).unwrap().rows.unwrap();
        assert_eq!(rows("delta.a", &[4, 3]), [0, 2, 1, 3]);
        assert_eq!(rows("delta.z", &[8, 3]), [0, 1, 4, 5, 2, 3, 6, 7]);
        assert_eq!(rows("delta.qkv", &[12, 3]), [0, 1, 2, 3, 4, 5, 8, 9, 6, 7, 10, 11]);
        let out = order("delta.out", &[3, 8], "qwen35", &m).unwrap();
        assert_eq!(out.columns.unwrap(), [0, 1, 4, 5, 2, 3, 6, 7]);
    }

    #[test]
    fn heads_that_do_not_divide_the_rows_are_refused() {
        for heads in [0, 3, 16, usize::MAX] {
            let keys = [
                ("attention.head_count", heads),
                ("attention.head_count_kv", heads),
                ("rope.dimension_count", 6),
            ];
            let mut m = metadata(&keys);
            m.set("rope.layout", "split");
            for name in ["attn.q", "attn.k.bias"] {
                let error =
                    order(name, &[8, 4], "llama", &m).err().expect("8 rows are no whole number of heads");
                assert!(error.to_string().contains(name), "{error}");
            }
        }
        let huge = [
            ("ssm.group_count", 1 << 62),
            ("ssm.time_step_rank", 1 << 63),
            ("ssm.state_size", 1 << 62),
            ("ssm.inner_size", usize::MAX),
        ];
        let mut m = metadata(&huge);
        m.set("ssm.v_order", "grouped");
        for values in [1 << 63, 0usize] {
            m.set("ssm.time_step_rank", values);
            for name in ["delta.qkv", "delta.z", "delta.decay"] {
                assert!(order(name, &[8, 4], "qwen35", &m).unwrap().rows.is_none());
            }
        }
    }
}
