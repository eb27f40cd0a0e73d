//! What `keys`, `values` and `items` of a dict give: it can be looped over and counted, but it is no list.

use minijinja::value::{Enumerator, Object, ObjectRepr, Tuple, ValueKind, from_args};
use minijinja::{Error, Value};
use std::sync::Arc;

/// The keys, values or items of a dict.
#[derive(Debug)]
pub struct View {
    /// The name that Python prints.
    pub name: &'static str,
    pub entries: Vec<Value>,
}

impl Object for View {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Iterable
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.entries.clone())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.entries.len())
    }
}

/// The view that `method` of `map` gives, if it gives one.
pub fn of(map: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let name = match method {
        "keys" => "dict_keys",
        "values" => "dict_values",
        "items" => "dict_items",
        _ => return Ok(None),
    };
    let () = from_args(args)?;
    let mut entries = Vec::with_capacity(map.len().unwrap_or(0));
    for key in map.try_iter()? {
        entries.push(match method {
            "keys" => key,
            "values" => map.get_item(&key)?,
            _ => {
                let value = map.get_item(&key)?;
                Value::from(Tuple::from([key, value]))
            }
        });
    }
    Ok(Some(Value::from_object(View { name, entries })))
}

/// Whether Python would have a list or tuple here. The engine gives slices and sums of lists as iterators that know
/// their length.
pub fn is_list(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq => true,
        ValueKind::Iterable => value.len().is_some() && value.downcast_object_ref::<View>().is_none(),
        _ => false,
    }
}
