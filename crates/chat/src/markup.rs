//! Strings that are safe for HTML, as Python's `markupsafe.Markup` has them: what joins them is escaped.
//!
//! `safe` and `escape` make them. Printing does not escape, nor does `~`, but `+` and the methods of a safe string do,
//! and what they return is safe again. The engine has safe strings too, and escapes for none of these outside HTML.

use crate::{python, python::invalid};
use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, State, Value};

/// The filter `safe`.
pub fn safe(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_safe() { Ok(value.clone()) } else { text(state, value).map(Value::from_safe_string) }
}

/// The filter `escape`: a safe string stays as it is.
pub fn escape(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_safe() { Ok(value.clone()) } else { force_escape(state, value) }
}

/// The filter `forceescape`: a safe string is escaped once more.
pub fn force_escape(state: &State, value: &Value) -> Result<Value, Error> {
    let text = text(state, value)?;
    state.consume_fuel(text.len() as u64 / 8)?; // a character becomes up to five, paid before they are written
    Ok(Value::from_safe_string(escaped(&text)))
}

/// The operator `+`: of two strings with one safe, the other is escaped; all else is the engine's.
pub fn plus(state: &mut State, left: &Value, right: &Value) -> Result<Value, Error> {
    if let (Some(a), Some(b)) = (left.as_str(), right.as_str()) {
        state.consume_fuel((a.len() + b.len()) as u64 / 64)?;
        return match (left.is_safe(), right.is_safe()) {
            (false, false) => Ok(Value::from([a, b].concat())),
            _ => {
                let (a, b) = (escape(state, left)?, escape(state, right)?);
                Ok(Value::from_safe_string(format!("{a}{b}")))
            }
        };
    }
    let is_number = |v: &Value| matches!(v.kind(), ValueKind::Number | ValueKind::Bool);
    if right.is_undefined() || is_number(left) != is_number(right) {
        let (left, right) = (left.kind(), right.kind());
        return Err(invalid(format!("+: expected two values of a kind, found {left} and {right}")));
    }
    // The engine adds in this filter as its own operator does.
    state.apply_filter("sum", &[Value::from(vec![right.clone()]), Value::from(()), left.clone()])
}

/// The arguments that `method` of a safe string gets for these.
pub fn arguments(state: &State, method: &str, args: &[Value]) -> Result<Vec<Value>, Error> {
    let mut args = args.to_vec();
    match (method, &mut args[..]) {
        ("join", [values, ..]) => {
            let items: Result<Vec<_>, _> = values.try_iter()?.map(|item| escape(state, &item)).collect();
            *values = items?.into();
        }
        ("replace", [_, new, ..]) => *new = escape(state, new)?,
        ("ljust" | "rjust" | "center", [_, fill, ..]) => *fill = escape(state, fill)?,
        ("format", args) => {
            for argument in args.iter_mut().filter(|argument| argument.kind() == ValueKind::String) {
                *argument = escape(state, argument)?;
            }
        }
        _ => {}
    }
    Ok(args)
}

/// What a method of a safe string gives, made safe.
pub fn marked(value: Value) -> Value {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => Value::from_safe_string(text.into()),
        (None, ValueKind::Seq) => {
            let items: Vec<Value> = value.try_iter().into_iter().flatten().map(marked).collect();
            if value.is_tuple() { Value::from(Tuple::from(items)) } else { items.into() }
        }
        _ => value,
    }
}

fn text(state: &State, value: &Value) -> Result<String, Error> {
    match value.as_str() {
        Some(text) => Ok(text.into()),
        None => python::str(state, value),
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}
