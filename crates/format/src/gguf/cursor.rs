//! Reading numbers and strings from the head of a file, never past its end.

use super::entry::{Entry, ValueType};
use crate::{Problem, Value};

/// The most elements a list may have; the largest vocabularies have under a million tokens.
const MAX_LIST: u64 = 1 << 26;
/// The longest text, as in the reference reader.
const MAX_TEXT: u64 = 1 << 30;
/// The longest key.
const MAX_KEY: usize = 65_535;

/// A place in the bytes of a file.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
    pub big_endian: bool,
}

impl<'a> Cursor<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, big_endian: false }
    }

    pub fn position(&self) -> usize {
        self.at
    }

    pub fn left(&self) -> u64 {
        (self.bytes.len() - self.at) as u64
    }

    pub fn take(&mut self, what: &'static str, len: u64) -> Result<&'a [u8], Problem> {
        let left = self.left();
        if len > left {
            return Err(Problem::Truncated { what, needed: len, left });
        }
        let start = self.at;
        self.at += len as usize; // at most what is left
        Ok(&self.bytes[start..self.at])
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Problem> {
        let mut bytes: [u8; N] = self.take(what, N as u64)?.try_into().expect("take gives as many as asked");
        if self.big_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }

    pub fn u32(&mut self, what: &'static str) -> Result<u32, Problem> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub fn u64(&mut self, what: &'static str) -> Result<u64, Problem> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of things of at least `smallest` bytes, so that it can be at most as large as the file allows.
    pub fn count(&mut self, what: &'static str, smallest: u64) -> Result<u64, Problem> {
        let count = self.u64(what)?;
        let needed = count.checked_mul(smallest).ok_or(Problem::Overflow)?;
        if needed > self.left() {
            return Err(Problem::Truncated { what, needed, left: self.left() });
        }
        Ok(count)
    }

    pub fn text(&mut self, what: &'static str) -> Result<String, Problem> {
        let len = self.u64(what)?;
        if len > MAX_TEXT {
            return Err(Problem::expected(format!("{what} of at most {MAX_TEXT} bytes"), len));
        }
        let bytes = self.take(what, len)?;
        let text = std::str::from_utf8(bytes)
            .map_err(|_| Problem::expected(format!("{what} in UTF-8"), "other bytes"))?;
        Ok(text.to_owned())
    }

    /// A name: text that is not empty and without NUL.
    pub fn name(&mut self, what: &'static str) -> Result<String, Problem> {
        let name = self.text(what)?;
        if name.is_empty() || name.len() > MAX_KEY || name.contains('\0') {
            let found = if name.is_empty() { "an empty one".into() } else { format!("{name:.80?}") };
            return Err(Problem::expected(format!("{what} of 1 to {MAX_KEY} bytes without NUL"), found));
        }
        Ok(name)
    }

    pub fn entry(&mut self, key: String) -> Result<Entry, Problem> {
        let id = self.u32("value type")?;
        let found = || Problem::expected("a value type from 0 to 12", id);
        let value_type = ValueType::from_id(id).ok_or_else(found)?;
        if value_type != ValueType::List {
            return Ok(Entry { key, value: self.value(value_type)?, value_type, element_type: None });
        }
        let id = self.u32("element type")?;
        let element = ValueType::from_id(id).filter(|&t| t != ValueType::List);
        let element =
            element.ok_or_else(|| Problem::expected("an element type from 0 to 8 or 10 to 12", id))?;
        Ok(Entry { key, value: self.list(element)?, value_type, element_type: Some(element) })
    }

    fn value(&mut self, value_type: ValueType) -> Result<Value, Problem> {
        Ok(match value_type {
            ValueType::F32 => Value::Float(self.array("value").map(f32::from_le_bytes)?.into()),
            ValueType::F64 => Value::Float(self.array("value").map(f64::from_le_bytes)?),
            ValueType::Bool => Value::Bool(self.boolean()?),
            ValueType::Text => Value::Text(self.text("text")?),
            integer => Value::Int(self.integer(integer)?),
        })
    }

    fn boolean(&mut self) -> Result<bool, Problem> {
        match self.array::<1>("value")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(Problem::expected("a boolean, 0 or 1", other)),
        }
    }

    fn integer(&mut self, value_type: ValueType) -> Result<i128, Problem> {
        let what = "value";
        Ok(match value_type {
            ValueType::U8 => self.array(what).map(u8::from_le_bytes)?.into(),
            ValueType::I8 => self.array(what).map(i8::from_le_bytes)?.into(),
            ValueType::U16 => self.array(what).map(u16::from_le_bytes)?.into(),
            ValueType::I16 => self.array(what).map(i16::from_le_bytes)?.into(),
            ValueType::U32 => self.array(what).map(u32::from_le_bytes)?.into(),
            ValueType::I32 => self.array(what).map(i32::from_le_bytes)?.into(),
            ValueType::U64 => self.array(what).map(u64::from_le_bytes)?.into(),
            _ => self.array(what).map(i64::from_le_bytes)?.into(),
        })
    }

    fn list(&mut self, element: ValueType) -> Result<Value, Problem> {
        let count = self.count("list", element.bytes())?;
        if count > MAX_LIST {
            return Err(Problem::expected(format!("a list of at most {MAX_LIST} elements"), count));
        }
        let each = 0..count;
        Ok(match element {
            ValueType::F32 | ValueType::F64 => Value::Floats(
                each.map(|_| match self.value(element)? {
                    Value::Float(x) => Ok(x as f32),
                    other => Err(Problem::expected("a float", other)),
                })
                .collect::<Result<_, _>>()?,
            ),
            ValueType::Bool => Value::Bools(each.map(|_| self.boolean()).collect::<Result<_, _>>()?),
            ValueType::Text => Value::Texts(each.map(|_| self.text("text")).collect::<Result<_, _>>()?),
            integer => Value::Ints(
                each.map(|_| {
                    let n = self.integer(integer)?;
                    i64::try_from(n).map_err(|_| Problem::expected("list elements that fit i64", n))
                })
                .collect::<Result<_, _>>()?,
            ),
        })
    }
}
