//! Writing GGUF files, version 3, little-endian.

use super::{
    entry::{Entry, ValueType},
    read::{DEFAULT_ALIGNMENT, MAGIC, align_up},
};
use crate::{Error, Problem, Value, replace};
use nibble_quant::{Codec, Spec, byte_len};
use nibble_tensor::Shape;
use std::{
    io::{self, Write},
    path::Path,
};

/// A tensor to be written: what it will be.
#[derive(Clone)]
pub struct NewTensor {
    /// The name in the file.
    pub name: String,
    /// Row-major shape, 1 to 4 dimensions.
    pub shape: Shape,
    /// The encoding of the bytes.
    pub codec: &'static dyn Codec,
}

/// A tensor and its bytes, when their turn comes.
pub struct WriteTensor<'a> {
    /// What it will be.
    pub tensor: NewTensor,
    /// Writes exactly the bytes that shape and codec take; called once, in order, so that only one tensor need be in
    /// memory.
    pub data: WriteData<'a>,
}

/// Where everything goes in a file.
#[derive(Debug)]
pub struct Layout {
    /// All bytes before the data of the first tensor.
    pub head: Vec<u8>,
    /// For each tensor its bytes, and how many zeros follow them.
    pub lengths: Vec<(u64, usize)>,
}

/// Writes the bytes of one tensor.
pub type WriteData<'a> = Box<dyn FnMut(&mut dyn Write) -> io::Result<()> + 'a>;

impl<'a> WriteTensor<'a> {
    /// A tensor whose bytes are at hand.
    pub fn new(
        name: impl Into<String>,
        shape: impl Into<Shape>,
        codec: &'static dyn Codec,
        bytes: impl AsRef<[u8]> + 'a,
    ) -> Self {
        let data = Box::new(move |out: &mut dyn Write| out.write_all(bytes.as_ref()));
        Self { tensor: NewTensor { name: name.into(), shape: shape.into(), codec }, data }
    }
}

/// Writes a file as [`crate::replace`] does: nobody ever sees half of it.
///
/// # Errors
/// As [`write_to`], and if the file cannot be created or moved.
pub fn write(path: &Path, entries: &[Entry], tensors: Vec<WriteTensor<'_>>) -> Result<(), Error> {
    let io = |error| Problem::Io(error).at_path(path);
    replace(path, io, |out| write_to(out, entries, tensors).map_err(|e| e.within(path.display().to_string())))
}

/// Writes keys and tensors. `general.alignment` in `entries` is obeyed.
///
/// # Errors
/// If a tensor's codec has no GGUF type, its shape splits a block, its `data` writes another number of bytes, a list
/// does not fit its type, or `out` fails.
pub fn write_to(out: &mut dyn Write, entries: &[Entry], tensors: Vec<WriteTensor<'_>>) -> Result<(), Error> {
    let layout = layout(entries, tensors.iter().map(|t| &t.tensor))?;
    let io = |error| Problem::Io(error).at("writing");
    out.write_all(&layout.head).map_err(io)?;
    for (WriteTensor { tensor, mut data }, (len, padding)) in tensors.into_iter().zip(layout.lengths) {
        let place = || format!("tensor `{}`", tensor.name);
        let mut counted = Counted { out, left: len, over: false };
        let result = data(&mut counted);
        if counted.over || (result.is_ok() && counted.left > 0) {
            let found = if counted.over { "more".into() } else { (len - counted.left).to_string() };
            return Err(Problem::expected(format!("{len} bytes"), found).at(place()));
        }
        result.map_err(|e| Problem::Io(e).at(place()))?;
        out.write_all(&vec![0; padding]).map_err(io)?;
    }
    out.flush().map_err(io)
}

/// The head of a file with these keys and tensors. `general.alignment` in `entries` is obeyed.
///
/// # Errors
/// If a tensor's codec has no GGUF type, its shape splits a block, or a list does not fit its type.
pub fn layout<'a>(
    entries: &[Entry],
    tensors: impl ExactSizeIterator<Item = &'a NewTensor>,
) -> Result<Layout, Error> {
    let alignment = match entries.iter().find(|e| e.key == "general.alignment").map(|e| &e.value) {
        Some(Value::Int(n)) if n.count_ones() == 1 && *n <= 1 << 16 => *n as u64,
        Some(other) => {
            let problem = Problem::expected("a power of two up to 65536", other);
            return Err(problem.at("key `general.alignment`"));
        }
        None => DEFAULT_ALIGNMENT,
    };
    let mut head = MAGIC.to_vec();
    head.extend(3u32.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((entries.len() as u64).to_le_bytes());
    for entry in entries {
        put_entry(&mut head, entry).map_err(|p| p.at(format!("key `{}`", entry.key)))?;
    }
    let (mut offset, mut lengths) = (0u64, Vec::new());
    for tensor in tensors {
        let place = |p: Problem| p.at(format!("tensor `{}`", tensor.name));
        let spec: &'static Spec = tensor.codec.spec();
        let id = spec.gguf.ok_or_else(|| {
            place(Problem::Unsupported(format!(
                "{} has no GGUF tensor type; choose another encoding",
                spec.name
            )))
        })?;
        let len = byte_len(&tensor.shape, tensor.codec).map_err(|p| place(Problem::Encoding(p)))? as u64;
        put_text(&mut head, &tensor.name);
        head.extend((tensor.shape.dims().len() as u32).to_le_bytes());
        for &dim in tensor.shape.dims().iter().rev() {
            head.extend((dim as u64).to_le_bytes());
        }
        head.extend(id.to_le_bytes());
        head.extend(offset.to_le_bytes());
        let end = offset.checked_add(len).ok_or_else(|| place(Problem::Overflow))?;
        offset = align_up(end, alignment).map_err(place)?;
        lengths.push((len, (offset - end) as usize)); // less than the alignment
    }
    head.resize(head.len().next_multiple_of(alignment as usize), 0);
    Ok(Layout { head, lengths })
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_entry(out: &mut Vec<u8>, entry: &Entry) -> Result<(), Problem> {
    put_text(out, &entry.key);
    out.extend((entry.value_type as u32).to_le_bytes());
    if entry.value_type != ValueType::List {
        return put_value(out, entry.value_type, &entry.value);
    }
    let element = entry.element_type.ok_or_else(|| Problem::Missing("an element type".into()))?;
    out.extend((element as u32).to_le_bytes());
    let mut all = |len: usize, mut each: &mut dyn Iterator<Item = Value>| {
        out.extend((len as u64).to_le_bytes());
        (&mut each).try_for_each(|value| put_value(out, element, &value))
    };
    match &entry.value {
        Value::Ints(list) => all(list.len(), &mut list.iter().map(|&n| n.into())),
        Value::Floats(list) => all(list.len(), &mut list.iter().map(|&x| x.into())),
        Value::Bools(list) => all(list.len(), &mut list.iter().map(|&b| b.into())),
        Value::Texts(list) => all(list.len(), &mut list.iter().map(|text| text.as_str().into())),
        other => Err(Problem::expected("a list", other)),
    }
}

fn put_value(out: &mut Vec<u8>, value_type: ValueType, value: &Value) -> Result<(), Problem> {
    match (value_type, value) {
        (ValueType::F32, Value::Float(x)) => out.extend((*x as f32).to_le_bytes()),
        (ValueType::F64, Value::Float(x)) => out.extend(x.to_le_bytes()),
        (ValueType::Bool, Value::Bool(b)) => out.push(u8::from(*b)),
        (ValueType::Text, Value::Text(text)) => put_text(out, text),
        (integer, Value::Int(n)) if integer.holds(*n) => {
            out.extend(&n.to_le_bytes()[..integer.bytes() as usize]) // two's complement: the low bytes
        }
        (other, value) => return Err(Problem::expected(format!("a value that fits {other:?}"), value)),
    }
    Ok(())
}

/// Passes on at most `left` bytes.
struct Counted<'a> {
    out: &'a mut dyn Write,
    left: u64,
    over: bool,
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left {
            self.over = true;
            return Err(io::Error::other("more bytes than the tensor has"));
        }
        let written = self.out.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
