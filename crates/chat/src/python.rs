//! How Python's `str` and `repr` write values.

use crate::view::{self, View};
use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, State, Value};
use std::{borrow::Cow, fmt::Write};

/// How deep values may nest when they are written.
pub const MAX_DEPTH: usize = 200;

/// The error of an operation that its values do not allow.
pub fn invalid(problem: impl Into<Cow<'static, str>>) -> Error {
    Error::new(ErrorKind::InvalidOperation, problem)
}

/// Whether the engine would write this value in another way than Python.
pub fn needs_care(value: &Value) -> bool {
    match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => true,
        ValueKind::Number => !value.is_integer(),
        _ => false,
    }
}

/// Python's `str(value)`.
pub fn str(state: &State, value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    if needs_care(value) {
        write(state, value, 0, &mut out)?;
    } else {
        let _ = write!(out, "{value}"); // a String takes whatever is written
    }
    Ok(out)
}

fn write(state: &State, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
    check_depth(depth)?;
    // Paid before it is written: the same value may stand in a small list a million times.
    state.consume_fuel(1 + value.as_str().map_or(0, |s| s.len() as u64 / 16))?;
    match value.kind() {
        ValueKind::String if value.is_safe() => {
            out.push_str("Markup(");
            quote(value.as_str().unwrap_or_default(), out);
            out.push(')');
        }
        ValueKind::String => quote(value.as_str().unwrap_or_default(), out),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&f64::try_from(value.clone()).map_or_else(|_| value.to_string(), float));
        }
        _ if view::is_list(value) => {
            let (open, close) = match value.is_tuple() {
                true if value.len() == Some(1) => ("(", ",)"),
                true => ("(", ")"),
                false => ("[", "]"),
            };
            list(state, value, depth, [open, close], out)?;
        }
        ValueKind::Iterable => match value.downcast_object_ref::<View>() {
            Some(view) => {
                out.push_str(view.name);
                list(state, value, depth, ["([", "])"], out)?;
            }
            None => {
                let _ = write!(out, "{value}");
            }
        },
        ValueKind::Map => {
            out.push('{');
            for (index, key) in value.try_iter()?.enumerate() {
                if index > 0 {
                    out.push_str(", ");
                }
                write(state, &key, depth + 1, out)?;
                out.push_str(": ");
                write(state, &value.get_item(&key)?, depth + 1, out)?;
            }
            out.push('}');
        }
        _ => {
            let _ = write!(out, "{value}");
        }
    }
    Ok(())
}

/// The texts of `items` with `separator` between them, each paid for before it is written.
pub fn join(
    state: &State,
    separator: &str,
    items: impl Iterator<Item = Result<Value, Error>>,
) -> Result<String, Error> {
    let mut out = String::new();
    for (index, item) in items.enumerate() {
        let item = item?;
        if index > 0 {
            out.push_str(separator);
        }
        match item.as_str() {
            Some(text) => {
                state.consume_fuel(1 + (text.len() + separator.len()) as u64 / 64)?;
                out.push_str(text);
            }
            None => out.push_str(&str(state, &item)?),
        }
    }
    Ok(out)
}

fn list(
    state: &State,
    value: &Value,
    depth: usize,
    brackets: [&str; 2],
    out: &mut String,
) -> Result<(), Error> {
    out.push_str(brackets[0]);
    for (index, item) in value.try_iter()?.enumerate() {
        if index > 0 {
            out.push_str(", ");
        }
        write(state, &item, depth + 1, out)?;
    }
    out.push_str(brackets[1]);
    Ok(())
}

/// An error if a value nests too deep to be written.
pub fn check_depth(depth: usize) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(invalid(format!("expected a value of at most {MAX_DEPTH} levels")));
    }
    Ok(())
}

/// A number as Python's `repr` writes it: the shortest digits that read back the same, with an exponent below 1e-4
/// and from 1e16.
pub fn float(value: f64) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "nan".into() } else { format!("{value}") };
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

/// The text in quotes, with escapes for what does not print.
fn quote(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote => {
                out.push('\\');
                out.push(c);
            }
            c if prints(c) => out.push(c),
            c => {
                let _ = match c as u32 {
                    code @ ..=0xff => write!(out, "\\x{code:02x}"),
                    code @ ..=0xffff => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push(quote);
}

/// Whether Python prints a character as it is: no control, format, private or separator character but the space.
/// Code points without a character are taken to print, since they differ by version of Unicode.
fn prints(c: char) -> bool {
    if c.is_control() || (c.is_whitespace() && c != ' ') {
        return false;
    }
    !matches!(
        c as u32,
        0xad | 0x600..=0x605
            | 0x61c
            | 0x6dd
            | 0x70f
            | 0x890..=0x891
            | 0x8e2
            | 0x180e
            | 0x200b..=0x200f
            | 0x202a..=0x202e
            | 0x2060..=0x2064
            | 0x2066..=0x206f
            | 0xe000..=0xf8ff
            | 0xfeff
            | 0xfff9..=0xfffb
            | 0x110bd
            | 0x110cd
            | 0x13430..=0x1343f
            | 0x1bca0..=0x1bca3
            | 0x1d173..=0x1d17a
            | 0xe0001
            | 0xe0020..=0xe007f
            | 0xf0000..
    )
}

/// What to put before a line: spaces, given as their number, or any short text.
pub fn indentation(value: &Value) -> Result<String, Error> {
    match (value.as_str(), value.as_i64()) {
        (Some(text), _) if text.len() <= 64 => Ok(text.into()),
        (None, Some(spaces)) if spaces <= 64 => Ok(" ".repeat(spaces.max(0) as usize)),
        _ => Err(invalid("expected an indent of at most 64 spaces, or a short text")),
    }
}
