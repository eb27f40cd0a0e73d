//! Methods of Python's strings, lists and dicts that templates call.
//!
//! Most come from `minijinja-contrib`; here are those it lacks or does differently. Methods that change a value
//! (`append`, `pop`, `update`) do not exist, as in the sandbox that `transformers` uses.

use crate::{markup, python, python::invalid, view};
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat;

/// What a string may grow to when it is padded.
const MAX_WIDTH: i64 = 1 << 16;

/// Calls `method` of `value`, or says that there is no such method.
pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if !value.is_safe() {
        return plain(state, value, method, args);
    }
    let args = markup::arguments(state, method, args)?;
    plain(state, value, method, &args).map(markup::marked)
}

fn plain(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let found = match (value.as_str(), value.kind()) {
        (Some(text), _) => string(state, text, method, args)?,
        (None, ValueKind::Map) => view::of(value, method, args)?,
        (None, _) if view::is_list(value) => list(value, method, args)?,
        _ => None,
    };
    match found {
        Some(result) => Ok(result),
        None => pycompat::unknown_method_callback(state, value, method, args),
    }
}

fn string(state: &State, text: &str, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    // Each step below is linear in the text, and the engine itself pays for what is returned only.
    state.consume_fuel(text.len() as u64 / 64)?;
    Ok(Some(match method {
        "strip" | "lstrip" | "rstrip" => {
            let (chars,): (Option<&str>,) = from_args(args)?;
            strip(text, chars, method != "rstrip", method != "lstrip").into()
        }
        "split" | "rsplit" => {
            let (separator, limit) = split_arguments(args)?;
            Value::from(match (separator.as_deref(), method) {
                (Some(""), _) => return Err(invalid("split: expected a separator, found an empty string")),
                (Some(separator), "split") => pieces(text.splitn(limit, separator)),
                (Some(separator), _) => reversed(text.rsplitn(limit, separator)),
                (None, "split") => words(text, limit),
                (None, _) => words_from_end(text, limit),
            })
        }
        "format" if is_wide(text) => {
            return Err(invalid("format: expected widths below 100000, given as numbers"));
        }
        "join" => {
            let (values,): (&Value,) = from_args(args)?;
            python::join(state, text, values.try_iter()?.map(Ok))?.into()
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let first = method == "partition";
            let parts = if first { text.split_once(separator) } else { text.rsplit_once(separator) };
            let (before, separator, after) = match parts {
                Some((before, after)) => (before, separator, after),
                None if first => (text, "", ""),
                None => ("", "", text),
            };
            Value::from(Tuple::from([before.into(), separator.into(), after.into()]))
        }
        "splitlines" => {
            let (keep,): (Option<Value>,) = from_args(args)?;
            lines(text, keep.is_some_and(|v| v.is_true()))
        }
        "startswith" | "endswith" if args.len() > 1 => {
            let (affix, start, end): (Value, i64, Option<i64>) = from_args(args)?;
            let part = Value::from(range(text, start, end));
            return call_affix(&part, method, affix).map(Some);
        }
        "index" | "rindex" => {
            let (what,): (&str,) = from_args(args)?;
            let at = if method == "index" { text.find(what) } else { text.rfind(what) };
            let at = at.ok_or_else(|| invalid(format!("{method}: substring not found")))?;
            text[..at].chars().count().into()
        }
        "removeprefix" => {
            let (prefix,): (&str,) = from_args(args)?;
            text.strip_prefix(prefix).unwrap_or(text).into()
        }
        "removesuffix" => {
            let (suffix,): (&str,) = from_args(args)?;
            text.strip_suffix(suffix).unwrap_or(text).into()
        }
        "title" => {
            let () = from_args(args)?;
            title(text).into()
        }
        "swapcase" => {
            let () = from_args(args)?;
            text.chars().map(swapped).collect::<String>().into()
        }
        "casefold" => {
            let () = from_args(args)?;
            text.to_lowercase().replace('ß', "ss").into()
        }
        "isdigit" | "isdecimal" => {
            let () = from_args(args)?;
            let plain =
                |c: char| c.is_ascii_digit() || (c.is_numeric() && c.is_alphanumeric() && is_digit(c));
            (!text.is_empty() && text.chars().all(plain)).into()
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let (sign, digits) = text.split_at(usize::from(text.starts_with(['+', '-'])));
            format!("{sign}{}{digits}", padding(text, width, '0')?).into()
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<&str>) = from_args(args)?;
            let mut fill = fill.unwrap_or(" ").chars();
            let (Some(fill), None) = (fill.next(), fill.next()) else {
                return Err(invalid(format!("{method}: expected one character to fill with")));
            };
            justify(text, method, width, fill)?.into()
        }
        _ => return Ok(None),
    }))
}

/// Whether a format may ask for more padding than is sensible: the engine would write it before it counts.
fn is_wide(format: &str) -> bool {
    let digits = format.split(|c: char| !c.is_ascii_digit()).any(|run| run.len() > 5);
    // Doubled braces stand for themselves, but at the end of a field within a field.
    digits || fields_nest(&format.replace("{{", ""))
}

/// Whether a field opens before the one before it has closed.
fn fields_nest(text: &str) -> bool {
    let mut open = false;
    for c in text.chars() {
        match c {
            '{' if open => return true,
            '{' => open = true,
            '}' => open = false,
            _ => {}
        }
    }
    false
}

fn list(value: &Value, method: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    if !matches!(method, "index" | "count") {
        return Ok(None);
    }
    let (what,): (&Value,) = from_args(args)?;
    if method == "count" {
        return Ok(Some(value.try_iter()?.filter(|item| item == what).count().into()));
    }
    let at = value.try_iter()?.position(|item| item == *what);
    at.map(|at| Some(at.into())).ok_or_else(|| invalid("index: the value is not in the list"))
}

/// What Python takes for white space: Unicode's, and four separators of ASCII.
fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

/// The text without `chars`, or without white space, at its ends.
pub fn strip<'a>(text: &'a str, chars: Option<&str>, start: bool, end: bool) -> &'a str {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |chars| chars.contains(c));
    let text = if start { text.trim_start_matches(drop) } else { text };
    if end { text.trim_end_matches(drop) } else { text }
}

/// The separator, and how many pieces there may be.
fn split_arguments(args: &[Value]) -> Result<(Option<String>, usize), Error> {
    let (separator, limit, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = if named.has("sep") { Some(named.get::<Value>("sep")?) } else { separator };
    let limit = if named.has("maxsplit") { Some(named.get::<i64>("maxsplit")?) } else { limit };
    named.assert_all_used()?;
    let separator = match separator {
        Some(v) if !v.is_none() => {
            let text = v.as_str().ok_or_else(|| invalid("split: expected a separator that is a string"))?;
            Some(text.to_owned())
        }
        _ => None,
    };
    Ok((separator, limit.and_then(|n| usize::try_from(n).ok()).map_or(usize::MAX, |n| n.saturating_add(1))))
}

fn pieces<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<Value> {
    parts.map(Value::from).collect()
}

fn reversed<'a>(parts: impl Iterator<Item = &'a str>) -> Vec<Value> {
    let mut parts = pieces(parts);
    parts.reverse();
    parts
}

/// Words between white space; the last of `limit` keeps what is left, but for white space before it.
fn words(text: &str, limit: usize) -> Vec<Value> {
    let mut out = Vec::new();
    let mut rest = text.trim_start_matches(is_space);
    while !rest.is_empty() && out.len() + 1 < limit {
        let end = rest.find(is_space).unwrap_or(rest.len());
        out.push(Value::from(&rest[..end]));
        rest = rest[end..].trim_start_matches(is_space);
    }
    if !rest.is_empty() {
        out.push(rest.into());
    }
    out
}

fn words_from_end(text: &str, limit: usize) -> Vec<Value> {
    let mut out = Vec::new();
    let mut rest = text.trim_end_matches(is_space);
    while !rest.is_empty() && out.len() + 1 < limit {
        let word = rest.rsplit(is_space).next().unwrap_or(rest);
        out.push(Value::from(word));
        rest = rest[..rest.len() - word.len()].trim_end_matches(is_space);
    }
    if !rest.is_empty() {
        out.push(rest.into());
    }
    out.reverse();
    out
}

/// Python's lines, which end at more characters than `\n`.
fn lines(text: &str, keep_ends: bool) -> Value {
    let is_end = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_end) {
        let end = if rest[at..].starts_with("\r\n") {
            2
        } else {
            rest[at..].chars().next().map_or(1, char::len_utf8)
        };
        out.push(Value::from(if keep_ends { &rest[..at + end] } else { &rest[..at] }));
        rest = &rest[at + end..];
    }
    if !rest.is_empty() {
        out.push(rest.into());
    }
    out.into()
}

/// The characters from `start` to `end`, counted from the end where negative.
fn range(text: &str, start: i64, end: Option<i64>) -> &str {
    let count = text.chars().count() as i64;
    let offset = |at: i64| {
        let at = if at < 0 { at.saturating_add(count).max(0) } else { at };
        text.char_indices().nth(at as usize).map_or(text.len(), |(offset, _)| offset)
    };
    let (start, end) = (offset(start), end.map_or(text.len(), offset));
    text.get(start..end).unwrap_or("")
}

fn call_affix(part: &Value, method: &str, affix: Value) -> Result<Value, Error> {
    let text = part.as_str().unwrap_or_default();
    let one = |affix: &Value| -> Result<bool, Error> {
        let affix = affix.as_str().ok_or_else(|| invalid(format!("{method}: expected a string")))?;
        Ok(if method == "startswith" { text.starts_with(affix) } else { text.ends_with(affix) })
    };
    if affix.as_str().is_some() {
        return one(&affix).map(Value::from);
    }
    for affix in affix.try_iter()? {
        if one(&affix)? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

/// Every letter after something that is no letter in capitals, every other one small.
fn title(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut inside = false;
    for c in text.chars() {
        if inside {
            out.extend(c.to_lowercase());
        } else {
            out.extend(c.to_uppercase());
        }
        inside = c.is_lowercase() || c.is_uppercase();
    }
    out
}

fn swapped(c: char) -> String {
    if c.is_uppercase() { c.to_lowercase().collect() } else { c.to_uppercase().collect() }
}

/// Superscripts count as digits in Python, fractions do not.
fn is_digit(c: char) -> bool {
    !matches!(c, '\u{bc}'..='\u{be}' | '\u{2150}'..='\u{218b}')
}

fn padding(text: &str, width: i64, fill: char) -> Result<String, Error> {
    if width > MAX_WIDTH {
        return Err(invalid(format!("expected a width of at most {MAX_WIDTH}, found {width}")));
    }
    let missing = usize::try_from(width).unwrap_or(0).saturating_sub(text.chars().count());
    Ok(std::iter::repeat_n(fill, missing).collect())
}

fn justify(text: &str, method: &str, width: i64, fill: char) -> Result<String, Error> {
    let pad = padding(text, width, fill)?;
    let missing = pad.chars().count();
    // Python puts the odd one of a centered text to the left where the width is odd too.
    let left = match method {
        "ljust" => 0,
        "rjust" => missing,
        _ => missing / 2 + (missing & width.max(0) as usize & 1),
    };
    let left: String = pad.chars().take(left).collect();
    Ok(format!("{left}{text}{}", &pad[left.len()..]))
}
