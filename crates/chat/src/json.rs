//! JSON in and out of templates: `tojson` writes what Python's `json.dumps` would, byte for byte.

use crate::{python, python::invalid, view};
use minijinja::value::{Kwargs, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};
use std::fmt::Write;

/// A JSON value as templates see it.
pub fn to_template(value: &serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(b) => Value::from(*b),
        serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Value::from(i),
            (_, Some(u)) => Value::from(u),
            _ => Value::from(n.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(s) => Value::from(s.as_str()),
        serde_json::Value::Array(items) => items.iter().map(to_template).collect(),
        serde_json::Value::Object(map) => {
            Value::from_pairs(map.iter().map(|(key, value)| (key.as_str(), to_template(value))))
        }
    }
}

/// The filter `tojson(ensure_ascii=False, indent=None, separators=None, sort_keys=False)`.
pub fn tojson(state: &State, value: &Value, positional: &[Value], named: Kwargs) -> Result<Value, Error> {
    const NAMES: [&str; 4] = ["ensure_ascii", "indent", "separators", "sort_keys"];
    if positional.len() > NAMES.len() {
        return Err(Error::from(ErrorKind::TooManyArguments));
    }
    let mut arguments: [Option<Value>; 4] = Default::default();
    for (index, name) in NAMES.iter().enumerate() {
        let given = if named.has(name) { Some(named.get(name)?) } else { positional.get(index).cloned() };
        arguments[index] = given.filter(|v: &Value| !v.is_none());
    }
    named.assert_all_used()?;
    let [ascii, indent, separators, sort] = arguments;
    let truth = |v: Option<Value>| v.is_some_and(|v| v.is_true());
    let (ascii, sort) = (truth(ascii), truth(sort));
    let indent = indent.map(|v| python::indentation(&v)).transpose()?;

    let (comma, colon) = match separators {
        Some(pair) => (text_at(&pair, 0)?, text_at(&pair, 1)?),
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
    };
    let mut writer = Writer { state, out: String::new(), ascii, indent, comma, colon, sort };
    writer.value(value, 0)?;
    Ok(Value::from(writer.out))
}

fn text_at(pair: &Value, index: usize) -> Result<String, Error> {
    let item = pair.get_item_by_index(index)?;
    item.as_str().map(String::from).ok_or_else(|| invalid("tojson: expected two strings as separators"))
}

struct Writer<'a, 'state, 'env> {
    state: &'a State<'state, 'env>,
    out: String,
    ascii: bool,
    indent: Option<String>,
    comma: String,
    colon: String,
    sort: bool,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        python::check_depth(depth)?;
        // Paid before it is written: the same string may stand in a small list a million times.
        self.state.consume_fuel(1 + value.as_str().map_or(0, |s| s.len() as u64 / 16))?;
        match value.kind() {
            _ if view::is_list(value) => self.list(value, depth),
            ValueKind::Map => self.map(value, depth),
            ValueKind::String => {
                self.string(value.as_str().unwrap_or_default());
                Ok(())
            }
            _ => {
                let text = scalar(value).ok_or_else(|| {
                    invalid(format!("tojson: a value of type {} has no form in JSON", value.kind()))
                })?;
                self.out.push_str(&text);
                Ok(())
            }
        }
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()? {
            self.separate(empty, depth + 1);
            empty = false;
            self.value(&item, depth + 1)?;
        }
        self.close(empty, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys: Vec<Value> = value.try_iter()?.collect();
        if self.sort {
            keys.sort();
        }
        self.out.push('{');
        let empty = keys.is_empty();
        for (index, key) in keys.iter().enumerate() {
            self.separate(index == 0, depth + 1);
            match (key.as_str(), scalar(key)) {
                (Some(text), _) => self.string(text),
                (None, Some(text)) => self.string(&text),
                (None, None) => return Err(invalid("tojson: expected a key that is a string or a number")),
            }
            self.out.push_str(&self.colon);
            self.value(&value.get_item(key)?, depth + 1)?;
        }
        self.close(empty, depth, '}');
        Ok(())
    }

    fn separate(&mut self, first: bool, depth: usize) {
        if !first {
            self.out.push_str(&self.comma);
        }
        self.line(depth);
    }

    fn close(&mut self, empty: bool, depth: usize, bracket: char) {
        if !empty {
            self.line(depth);
        }
        self.out.push(bracket);
    }

    fn line(&mut self, depth: usize) {
        if let Some(indent) = &self.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.ascii && c > '~') => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        let _ = write!(self.out, "\\u{unit:04x}"); // a String takes whatever is written
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

/// A null, boolean or number in JSON.
fn scalar(value: &Value) -> Option<String> {
    match value.kind() {
        ValueKind::None => Some("null".into()),
        ValueKind::Bool => Some(if value.is_true() { "true" } else { "false" }.into()),
        ValueKind::Number if value.is_integer() => Some(value.to_string()),
        ValueKind::Number => f64::try_from(value.clone()).ok().map(|v| match v {
            v if v.is_nan() => "NaN".into(),
            f64::INFINITY => "Infinity".into(),
            f64::NEG_INFINITY => "-Infinity".into(),
            v => python::float(v),
        }),
        _ => None,
    }
}
