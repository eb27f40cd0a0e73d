//! Keys and values of a model file, whatever its container.

use crate::{Error, Problem};
use std::{collections::BTreeMap, fmt};

/// A value of metadata. Integers of any width are one kind, as writers disagree on widths.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Any integer.
    Int(i128),
    /// Any float.
    Float(f64),
    /// `true`, `false`
    Bool(bool),
    /// Text.
    Text(String),
    /// Integers.
    Ints(Vec<i64>),
    /// Floats.
    Floats(Vec<f32>),
    /// Booleans.
    Bools(Vec<bool>),
    /// Texts.
    Texts(Vec<String>),
}

/// All of them, by key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    /// Keys in order.
    pub values: BTreeMap<String, Value>,
}

/// Getters. Each has a `_or` or `find_` twin that accepts an absent key; a key of another kind is an error in all.
///
/// # Errors
/// [`Problem::Missing`] if the key is absent, [`Problem::Expected`] if its value is of another kind or out of range.
impl Metadata {
    /// The value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// Sets `key`.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.values.insert(key.to_owned(), value.into());
    }

    /// Sets `key` unless it is there.
    pub fn set_default(&mut self, key: &str, value: impl Into<Value>) {
        self.values.entry(key.to_owned()).or_insert_with(|| value.into());
    }

    /// An integer in the range of `T`, if the key is there. A float without a fraction counts as an integer.
    pub fn find_int<T: TryFrom<i128>>(&self, key: &str) -> Result<Option<T>, Error> {
        let expected = || format!("an integer that fits {}", std::any::type_name::<T>());
        self.find(key, expected, |value| match value {
            Value::Int(n) => T::try_from(*n).ok(),
            Value::Bool(b) => T::try_from(i128::from(*b)).ok(),
            Value::Float(x) if x.fract() == 0.0 && x.abs() < 9e15 => T::try_from(*x as i128).ok(),
            _ => None,
        })
    }

    /// A count or a size.
    pub fn usize(&self, key: &str) -> Result<usize, Error> {
        self.find_int(key)?.ok_or_else(|| missing(key, "an integer"))
    }

    /// A count or a size, `default` if the key is absent.
    pub fn usize_or(&self, key: &str, default: usize) -> Result<usize, Error> {
        Ok(self.find_int(key)?.unwrap_or(default))
    }

    /// A finite number, if the key is there.
    pub fn find_f32(&self, key: &str) -> Result<Option<f32>, Error> {
        self.find(
            key,
            || "a finite number".into(),
            |value| match value {
                Value::Float(x) => Some(*x as f32).filter(|x| x.is_finite()),
                Value::Int(n) => Some(*n as f32),
                _ => None,
            },
        )
    }

    /// A finite number.
    pub fn f32(&self, key: &str) -> Result<f32, Error> {
        self.find_f32(key)?.ok_or_else(|| missing(key, "a number"))
    }

    /// A finite number, `default` if the key is absent.
    pub fn f32_or(&self, key: &str, default: f32) -> Result<f32, Error> {
        Ok(self.find_f32(key)?.unwrap_or(default))
    }

    /// A switch, if the key is there; the integers 0 and 1 count.
    pub fn find_bool(&self, key: &str) -> Result<Option<bool>, Error> {
        self.find(
            key,
            || "true or false".into(),
            |value| match value {
                Value::Bool(b) => Some(*b),
                Value::Int(0) => Some(false),
                Value::Int(1) => Some(true),
                _ => None,
            },
        )
    }

    /// Text, if the key is there.
    pub fn find_text(&self, key: &str) -> Result<Option<&str>, Error> {
        self.find(
            key,
            || "text".into(),
            |value| match value {
                Value::Text(text) => Some(text.as_str()),
                _ => None,
            },
        )
    }

    /// Text.
    pub fn text(&self, key: &str) -> Result<&str, Error> {
        self.find_text(key)?.ok_or_else(|| missing(key, "text"))
    }

    /// Integers, if the key is there.
    pub fn find_ints(&self, key: &str) -> Result<Option<&[i64]>, Error> {
        self.find(
            key,
            || "a list of integers".into(),
            |value| match value {
                Value::Ints(list) => Some(list.as_slice()),
                _ => None,
            },
        )
    }

    /// Integers.
    pub fn ints(&self, key: &str) -> Result<&[i64], Error> {
        self.find_ints(key)?.ok_or_else(|| missing(key, "a list of integers"))
    }

    /// Floats, if the key is there.
    pub fn find_floats(&self, key: &str) -> Result<Option<&[f32]>, Error> {
        self.find(
            key,
            || "a list of numbers".into(),
            |value| match value {
                Value::Floats(list) => Some(list.as_slice()),
                _ => None,
            },
        )
    }

    /// Booleans, if the key is there.
    pub fn find_bools(&self, key: &str) -> Result<Option<&[bool]>, Error> {
        self.find(
            key,
            || "a list of booleans".into(),
            |value| match value {
                Value::Bools(list) => Some(list.as_slice()),
                _ => None,
            },
        )
    }

    /// Texts, if the key is there.
    pub fn find_texts(&self, key: &str) -> Result<Option<&[String]>, Error> {
        self.find(
            key,
            || "a list of texts".into(),
            |value| match value {
                Value::Texts(list) => Some(list.as_slice()),
                _ => None,
            },
        )
    }

    /// Texts.
    pub fn texts(&self, key: &str) -> Result<&[String], Error> {
        self.find_texts(key)?.ok_or_else(|| missing(key, "a list of texts"))
    }

    fn find<'a, T>(
        &'a self,
        key: &str,
        expected: impl Fn() -> String,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, Error> {
        match self.values.get(key) {
            None => Ok(None),
            Some(value) => match read(value) {
                Some(read) => Ok(Some(read)),
                None => Err(Problem::expected(expected(), value).at(place(key))),
            },
        }
    }
}

fn place(key: &str) -> String {
    format!("key `{key}`")
}

fn missing(key: &str, what: &str) -> Error {
    Problem::Missing(what.to_owned()).at(place(key))
}

impl fmt::Display for Value {
    /// One line, cut after a few elements.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn list<T: fmt::Debug>(f: &mut fmt::Formatter<'_>, what: &str, list: &[T]) -> fmt::Result {
            let shown = &list[..list.len().min(4)];
            let more = if list.len() > shown.len() { ", ..." } else { "" };
            let shown: Vec<_> = shown.iter().map(|x| format!("{:.40}", format!("{x:?}"))).collect();
            write!(f, "{} {what} [{}{more}]", list.len(), shown.join(", "))
        }
        match self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Text(text) if text.chars().count() > 60 => {
                write!(f, "{:?}...", text.chars().take(60).collect::<String>())
            }
            Self::Text(text) => write!(f, "{text:?}"),
            Self::Ints(v) => list(f, "integers", v),
            Self::Floats(v) => list(f, "floats", v),
            Self::Bools(v) => list(f, "booleans", v),
            Self::Texts(v) => list(f, "texts", v),
        }
    }
}

macro_rules! value_from {
    ($($from:ty => |$x:ident| $to:expr;)*) => {
        $(impl From<$from> for Value {
            fn from($x: $from) -> Self {
                $to
            }
        })*
    };
}

value_from! {
    u32 => |x| Value::Int(x.into());
    u64 => |x| Value::Int(x.into());
    i64 => |x| Value::Int(x.into());
    usize => |x| Value::Int(x as i128);
    f32 => |x| Value::Float(x.into());
    f64 => |x| Value::Float(x);
    bool => |x| Value::Bool(x);
    &str => |x| Value::Text(x.to_owned());
    String => |x| Value::Text(x);
    Vec<i64> => |x| Value::Ints(x);
    Vec<f32> => |x| Value::Floats(x);
    Vec<bool> => |x| Value::Bools(x);
    Vec<String> => |x| Value::Texts(x);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn getters_name_key_expected_and_found() {
        let mut m = Metadata::default();
        m.set("block_count", "many");
        m.set("vocab_size", -1i64);
        let message = m.usize("block_count").unwrap_err().to_string();
        assert_eq!(message, "key `block_count`: expected an integer that fits usize, found \"many\"");
        let message = m.usize("vocab_size").unwrap_err().to_string();
        assert_eq!(message, "key `vocab_size`: expected an integer that fits usize, found -1");
        let message = m.f32("rope.freq_base").unwrap_err().to_string();
        assert_eq!(message, "key `rope.freq_base`: expected a number, found nothing");
    }

    #[test]
    fn integers_are_read_whatever_their_width() {
        let mut m = Metadata::default();
        m.set("a", u64::MAX);
        assert_eq!(m.find_int("a").unwrap(), Some(u64::MAX));
        assert!(m.find_int::<u32>("a").is_err());
        m.set("b", true);
        assert_eq!(m.usize("b").unwrap(), 1);
        m.set("c", 3usize);
        assert_eq!(m.f32("c").unwrap(), 3.0);
    }
}
