//! A limit on how large and deep a value may grow.
//!
//! The engine compares, prints and drops values by recursion, and counts no step for it. A list that holds the same list
//! twice, which does so again, is small in memory and endless to print. Loops make such values by assignment, so each
//! assigned value is measured as it would print.
//!
//! What is left is a product within one expression, such as `([x] * 100000) ~ ''` with a large `x`: its cost is that of
//! `x` times the factor, which no step counts.

use crate::{python, view};
use minijinja::value::ValueKind;
use minijinja::{Error, State, Value};

/// Most items that an assigned value may have, those of its items included.
const MAX_ITEMS: usize = 1 << 20;

/// The value itself, or an error if it is too large or too deep. Sums and slices of lists become lists.
pub fn check(state: &State, value: Value) -> Result<Value, Error> {
    if !is_container(&value) {
        return Ok(value);
    }
    let mut left = MAX_ITEMS;
    measure(&value, 0, &mut left)?;
    state.consume_fuel((MAX_ITEMS - left) as u64 / 64)?;
    if value.kind() == ValueKind::Iterable && view::is_list(&value) {
        return Ok(value.try_iter()?.collect::<Vec<Value>>().into());
    }
    Ok(value)
}

/// Whether a value has items that can be looked at again.
fn is_container(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    }
}

fn measure(value: &Value, depth: usize, left: &mut usize) -> Result<(), Error> {
    python::check_depth(depth)?;
    let items = value.len().unwrap_or(0);
    *left = left.checked_sub(items).ok_or_else(|| {
        python::invalid(format!("expected a value of at most {MAX_ITEMS} items, counted with theirs"))
    })?;
    let is_map = value.kind() == ValueKind::Map;
    for item in value.try_iter()? {
        let item = if is_map { value.get_item(&item)? } else { item };
        if is_container(&item) {
            measure(&item, depth + 1, left)?;
        }
    }
    Ok(())
}
