//! Jinja's filters, tests and printing where the engine's own differ from Python's.

use crate::{bounded, json, markup, methods, operators, python, source, view};
use minijinja::value::{Kwargs, StringInput, ValueKind};
use minijinja::{Environment, Error, State, Value, escape_formatter};

/// Puts Python's behavior over the engine's.
pub fn install(env: &mut Environment<'_>) {
    env.set_formatter(|out, state, value| match python::needs_care(value) {
        true => Ok(out.write_str(&python::str(state, value)?)?),
        false => escape_formatter(out, state, value),
    });
    env.add_filter(source::BOUNDED, bounded::check);
    env.add_filter(operators::PLUS, markup::plus);
    env.add_filter("safe", markup::safe);
    env.add_filter("escape", markup::escape);
    env.add_filter("e", markup::escape);
    env.add_filter("forceescape", markup::force_escape);
    env.add_filter("tojson", json::tojson);
    env.add_filter("string", string);
    env.add_filter("trim", trim);
    env.add_filter("join", join);
    env.add_filter("int", int);
    env.add_filter("float", float);
    env.add_filter("indent", indent);
    env.add_filter("center", center);
    env.add_filter("wordcount", |text: StringInput<'_>| text.as_str().split_whitespace().count());
    env.add_test("iterable", is_iterable);
    env.add_test("sequence", is_sequence);
    env.add_test("callable", is_callable);
}

fn string(state: &State, value: &Value) -> Result<Value, Error> {
    if value.as_str().is_some() { Ok(value.clone()) } else { python::str(state, value).map(Value::from) }
}

fn trim(text: StringInput<'_>, chars: Option<&str>) -> Value {
    text.preserve_safety(methods::strip(text.as_str(), chars, true, true).into())
}

/// `join(d="", attribute=None)`. The engine would write a long text first and count its steps afterwards.
fn join(
    state: &State,
    values: &Value,
    separator: Option<StringInput<'_>>,
    attribute: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let separator = match separator {
        Some(separator) => separator.as_str().to_owned(),
        None => named.get::<Option<String>>("d")?.unwrap_or_default(),
    };
    let attribute = if named.has("attribute") { named.get("attribute")? } else { attribute };
    named.assert_all_used()?;
    let items = values.try_iter()?.map(|item| match &attribute {
        None => Ok(item),
        Some(path) => path.to_string().split('.').try_fold(item, |item, name| match name.parse::<usize>() {
            Ok(index) => item.get_item_by_index(index),
            Err(_) => item.get_attr(name),
        }),
    });
    python::join(state, &separator, items)
}

/// `int(default=0, base=10)`: what is no number gives the default and no error.
fn int(value: &Value, default: Option<Value>, base: Option<u32>, named: Kwargs) -> Result<Value, Error> {
    let default = default_or(default, &named, Value::from(0))?;
    let base = base.or(named.get::<Option<u32>>("base")?).unwrap_or(10);
    named.assert_all_used()?;
    if !matches!(base, 2..=36) {
        return Err(python::invalid(format!("int: expected a base of 2 to 36, found {base}")));
    }
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(i64::from(value.is_true())),
        ValueKind::Number if value.is_integer() => value.clone(),
        ValueKind::Number => whole(f64::try_from(value.clone()).ok()).unwrap_or(default),
        ValueKind::String => {
            let text = value.as_str().unwrap_or_default().trim();
            let digits = match base {
                16 => text.trim_start_matches("0x"),
                8 => text.trim_start_matches("0o"),
                2 => text.trim_start_matches("0b"),
                _ => text,
            };
            match i128::from_str_radix(digits, base) {
                Ok(number) => Value::from(number),
                Err(_) => whole(text.parse().ok()).unwrap_or(default),
            }
        }
        _ => default,
    })
}

/// The whole part of a number that has one of reasonable size.
fn whole(number: Option<f64>) -> Option<Value> {
    number.filter(|n| n.abs() < 1e36).map(|n| Value::from(n as i128))
}

fn float(value: &Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = default_or(default, &named, Value::from(0.0))?;
    named.assert_all_used()?;
    Ok(match value.kind() {
        ValueKind::Bool => Value::from(f64::from(value.is_true())),
        ValueKind::Number => f64::try_from(value.clone()).map_or(default, Value::from),
        ValueKind::String => {
            value.as_str().unwrap_or_default().trim().parse::<f64>().map_or(default, Value::from)
        }
        _ => default,
    })
}

fn default_or(default: Option<Value>, named: &Kwargs, otherwise: Value) -> Result<Value, Error> {
    let default = if named.has("default") { Some(named.get("default")?) } else { default };
    Ok(default.unwrap_or(otherwise))
}

/// `indent(width=4, first=False, blank=False)`, where the width may be the text to put before each line.
fn indent(state: &State, text: StringInput<'_>, positional: &[Value], named: Kwargs) -> Result<Value, Error> {
    let argument = |index: usize, name: &str| -> Result<Option<Value>, Error> {
        if named.has(name) { named.get(name).map(Some) } else { Ok(positional.get(index).cloned()) }
    };
    let (width, first, blank) = (argument(0, "width")?, argument(1, "first")?, argument(2, "blank")?);
    named.assert_all_used()?;
    let before = match width {
        None => " ".repeat(4),
        Some(width) => python::indentation(&width)?,
    };
    let truth = |v: Option<Value>| v.is_some_and(|v| v.is_true());
    let (first, blank) = (truth(first), truth(blank));
    let len = text.as_str().len() + text.as_str().split('\n').count() * before.len();
    state.consume_fuel(len as u64 / 64)?;
    let mut out = String::with_capacity(len);
    for (index, line) in text.as_str().split('\n').enumerate() {
        if index > 0 {
            out.push('\n');
        }
        if if index == 0 { first } else { blank || !line.is_empty() } {
            out.push_str(&before);
        }
        out.push_str(line);
    }
    Ok(text.preserve_safety(out))
}

fn center(state: &mut State, text: StringInput<'_>, width: Option<i64>) -> Result<Value, Error> {
    let text = text.preserve_safety(text.as_str().into());
    methods::call(state, &text, "center", &[Value::from(width.unwrap_or(80))])
}

fn is_iterable(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable | ValueKind::String | ValueKind::Undefined
    )
}

/// Strings and dicts are sequences for Jinja; a mere iterator is not.
fn is_sequence(value: &Value) -> bool {
    view::is_list(value) || matches!(value.kind(), ValueKind::Map | ValueKind::String | ValueKind::Undefined)
}

fn is_callable(value: &Value) -> bool {
    value.kind() == ValueKind::Plain && value.as_object().is_some()
}
