//! A key, its value, and the type the value has in the file, so that it can be written back as it was.

use crate::Value;

/// The types of values, with the ids of the container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ValueType {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    Text = 8,
    List = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueType {
    const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::Text,
        Self::List,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    pub(super) fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// Bytes of a value; the least a text takes (its length).
    pub(super) fn bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::Text | Self::List | Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// Whether an integer can be written in this type.
    pub(super) fn holds(self, n: i128) -> bool {
        match self {
            Self::U8 => u8::try_from(n).is_ok(),
            Self::I8 => i8::try_from(n).is_ok(),
            Self::U16 => u16::try_from(n).is_ok(),
            Self::I16 => i16::try_from(n).is_ok(),
            Self::U32 => u32::try_from(n).is_ok(),
            Self::I32 => i32::try_from(n).is_ok(),
            Self::U64 => u64::try_from(n).is_ok(),
            Self::I64 => i64::try_from(n).is_ok(),
            _ => false,
        }
    }
}

/// One key of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key as the file has it, with the architecture's prefix.
    pub key: String,
    /// The value.
    pub value: Value,
    /// Its type in the file.
    pub value_type: ValueType,
    /// The type of its elements, if it is a list.
    pub element_type: Option<ValueType>,
}

impl Entry {
    /// A key with the type that other writers use: `u32` where an integer fits it, `f32` for floats, lists of `i32`.
    pub fn new(key: impl Into<String>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        let smallest = |order: [ValueType; 4], fits: &dyn Fn(ValueType) -> bool| {
            order.into_iter().find(|&t| fits(t)).unwrap_or(ValueType::I64)
        };
        let (value_type, element_type) = match &value {
            Value::Int(n) => {
                let order = [ValueType::U32, ValueType::I32, ValueType::U64, ValueType::I64];
                (smallest(order, &|t| t.holds(*n)), None)
            }
            Value::Float(_) => (ValueType::F32, None),
            Value::Bool(_) => (ValueType::Bool, None),
            Value::Text(_) => (ValueType::Text, None),
            Value::Ints(list) => {
                let order = [ValueType::I32, ValueType::U32, ValueType::I64, ValueType::I64];
                let element = smallest(order, &|t| list.iter().all(|&n| t.holds(n.into())));
                (ValueType::List, Some(element))
            }
            Value::Floats(_) => (ValueType::List, Some(ValueType::F32)),
            Value::Bools(_) => (ValueType::List, Some(ValueType::Bool)),
            Value::Texts(_) => (ValueType::List, Some(ValueType::Text)),
        };
        Self { key, value, value_type, element_type }
    }
}
