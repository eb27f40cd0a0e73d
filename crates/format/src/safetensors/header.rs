//! One safetensors file: a JSON header that names slices of the rest.
//!
//! Layout: `u64` length of the header, little-endian; the header, a JSON object that starts with `{`; the data. An
//! entry is `{"dtype", "shape", "data_offsets": [begin, end]}`, offsets within the data. Entries cover the data without
//! gaps and overlaps. Source: the safetensors specification.

use crate::{Error, Problem};
use nibble_quant::{Encoded, Registry};
use nibble_tensor::{Bytes, Shape};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};
use std::{
    collections::BTreeMap,
    fmt,
    ops::Range,
    path::{Path, PathBuf},
};

/// The longest header, as in the reference reader.
const MAX_HEADER: u64 = 100_000_000;

/// A tensor as the header describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// The type of its numbers: `BF16`.
    pub dtype: String,
    /// Row-major shape, outermost first.
    pub shape: Vec<usize>,
    /// Where its bytes are in the file.
    pub range: Range<usize>,
}

/// A safetensors file.
#[derive(Clone, Debug)]
pub struct SafetensorsFile {
    /// Where it was opened; only a name for messages if it came from memory.
    pub path: PathBuf,
    /// Free texts of the writer.
    pub metadata: BTreeMap<String, String>,
    /// Tensors by name.
    pub tensors: BTreeMap<String, TensorInfo>,
    /// The whole file.
    pub bytes: Bytes,
}

impl SafetensorsFile {
    /// Reads the header of a file that is in memory or mapped. `path` is for messages.
    ///
    /// # Errors
    /// One that names the tensor, for everything that is not as the format says.
    pub fn parse(bytes: Bytes, path: &Path) -> Result<Self, Error> {
        let at = |problem: Problem| problem.at_path(path);
        let (len, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| {
            at(Problem::Truncated { what: "the header's length", needed: 8, left: bytes.len() as u64 })
        })?;
        let (needed, left) = (u64::from_le_bytes(*len), rest.len() as u64);
        if needed > MAX_HEADER {
            return Err(at(Problem::expected(format!("a header of at most {MAX_HEADER} bytes"), needed)));
        }
        if needed > left {
            return Err(at(Problem::Truncated { what: "a header", needed, left }));
        }
        let (text, data) = rest.split_at(needed as usize);
        if text.first() != Some(&b'{') {
            return Err(at(Problem::expected("a header that starts with `{`", "another byte")));
        }
        let header: Header = serde_json::from_slice(text).map_err(|e| at(Problem::Json(e)))?;
        let data_start = bytes.len() - data.len();
        let tensors = place(header.entries, data_start, data.len())
            .map_err(|e| e.within(path.display().to_string()))?;
        Ok(Self { path: path.to_owned(), metadata: header.metadata, tensors, bytes })
    }

    /// The bytes of a tensor, shared with the file.
    pub fn raw(&self, tensor: &TensorInfo) -> Bytes {
        self.bytes.slice(tensor.range.clone())
    }

    /// The tensor `name`, its bytes shared with the file; `None` if it holds something else than `F32`, `F16`, `BF16`
    /// or `F64`, has no elements or more than four dimensions.
    ///
    /// # Errors
    /// [`Problem::Missing`] if there is no tensor of that name.
    pub fn tensor(&self, name: &str, codecs: &Registry) -> Result<Option<Encoded>, Error> {
        let place = || format!("{}: tensor `{name}`", self.path.display());
        let info = self.tensors.get(name).ok_or_else(|| Problem::Missing("a tensor".into()).at(place()))?;
        let floats = ["F32", "F16", "BF16", "F64"].contains(&info.dtype.as_str());
        let codec = floats.then(|| codecs.by_name(&info.dtype.to_ascii_lowercase())).flatten();
        let (Some(codec), Some(shape)) = (codec, Shape::new(&info.shape)) else { return Ok(None) };
        if info.range.is_empty() {
            return Ok(None);
        }
        Encoded::new(name, shape, codec, self.raw(info))
            .map(Some)
            .map_err(|e| Error::from(e).within(self.path.display().to_string()))
    }
}

/// Bits of a number.
pub(super) fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F4" => 4,
        "F6_E2M3" | "F6_E3M2" => 6,
        "BOOL" | "U8" | "I8" | "F8_E5M2" | "F8_E4M3" | "F8_E8M0" | "F8_E5M2FNUZ" | "F8_E4M3FNUZ" => 8,
        "U16" | "I16" | "F16" | "BF16" => 16,
        "U32" | "I32" | "F32" => 32,
        "U64" | "I64" | "F64" | "C64" => 64,
        _ => return None,
    })
}

/// Checks entries against the data and each other.
fn place(
    entries: Vec<(String, Entry)>,
    data_start: usize,
    data_len: usize,
) -> Result<BTreeMap<String, TensorInfo>, Error> {
    let mut order: Vec<&(String, Entry)> = entries.iter().collect();
    order.sort_by_key(|(_, entry)| entry.data_offsets);
    let mut covered = 0;
    let mut tensors = BTreeMap::new();
    for (name, entry) in order {
        let place = |problem: Problem| problem.at(format!("tensor `{name}`"));
        let [begin, end] = entry.data_offsets;
        if begin != covered {
            return Err(place(Problem::expected(
                format!("data from {covered} on, without gap or overlap"),
                begin,
            )));
        }
        let len = byte_len(entry).map_err(place)?;
        if end.checked_sub(begin) != Some(len) {
            let expected = format!("{len} bytes for {:?} of {}", entry.shape, entry.dtype);
            return Err(place(Problem::expected(expected, format!("data from {begin} to {end}"))));
        }
        if end > data_len as u64 {
            let left = data_len as u64 - begin;
            return Err(place(Problem::Truncated { what: "data", needed: len, left }));
        }
        covered = end;
        let range = data_start + begin as usize..data_start + end as usize; // within the file
        let shape = entry.shape.iter().map(|&dim| usize::try_from(dim)).collect::<Result<_, _>>();
        let shape = shape.map_err(|_| place(Problem::Overflow))?;
        let info = TensorInfo { dtype: entry.dtype.clone(), shape, range };
        if tensors.insert(name.clone(), info).is_some() {
            return Err(place(Problem::Duplicate));
        }
    }
    if covered != data_len as u64 {
        let expected = format!("{covered} bytes of data, as the header says");
        return Err(Problem::expected(expected, format!("{data_len} in the file")).at("header"));
    }
    Ok(tensors)
}

fn byte_len(entry: &Entry) -> Result<u64, Problem> {
    let bits = bits(&entry.dtype)
        .ok_or_else(|| Problem::Unsupported(format!("its type {:.20?} is not known", entry.dtype)))?;
    let elements = entry.shape.iter().try_fold(1u64, |n, &dim| n.checked_mul(dim));
    let total = elements.and_then(|n| n.checked_mul(bits)).ok_or(Problem::Overflow)?;
    if !total.is_multiple_of(8) {
        return Err(Problem::expected("whole bytes", format!("{total} bits")));
    }
    Ok(total / 8)
}

struct Header {
    metadata: BTreeMap<String, String>,
    /// In file order; a name may come twice, which `place` refuses.
    entries: Vec<(String, Entry)>,
}

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let mut header = Header { metadata: BTreeMap::new(), entries: Vec::new() };
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        header.metadata = map.next_value()?;
                        continue;
                    }
                    let entry = map.next_value();
                    let entry = entry.map_err(|e| A::Error::custom(format!("tensor `{name:.200}`: {e}")))?;
                    header.entries.push((name, entry));
                }
                Ok(header)
            }
        }
        deserializer.deserialize_map(Entries)
    }
}
