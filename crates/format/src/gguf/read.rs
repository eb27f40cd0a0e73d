//! One GGUF file: header, keys and tensor infos, each checked against the bytes that are really there.

use super::{
    cursor::Cursor,
    entry::{Entry, ValueType},
    tables::{self, Table},
    tiling::{self, Tiling},
    types,
};
use crate::{Error, Problem, Type42, Value, map, repack::Repack, ternary};
use nibble_quant::{Encoded, Registry, byte_len};
use nibble_tensor::{Bytes, MAX_DIMS, Shape};
use std::{
    collections::HashSet,
    ops::Range,
    path::{Path, PathBuf},
};

pub(super) const MAGIC: &[u8; 4] = b"GGUF";
pub(super) const DEFAULT_ALIGNMENT: u64 = 32;
/// A larger alignment only serves to make files large.
const MAX_ALIGNMENT: u64 = 1 << 16;
/// The smallest key with a value, and the smallest tensor info, in bytes.
const SMALLEST_ENTRY: u64 = 13;
const SMALLEST_INFO: u64 = 24;
/// The two meanings of tensor type 42 and the type of one of them.
const Q2_0: u32 = 42;
const PQ2_0: u32 = 142;

/// A tensor as the file describes it.
#[derive(Clone, Debug)]
pub struct TensorInfo {
    /// The name in the file.
    pub name: String,
    /// Row-major shape, outermost first (the file has it the other way round).
    pub shape: Shape,
    /// The tensor type; 142 where a file's 42 turned out to mean that.
    pub type_id: u32,
    /// Where its bytes are in the file.
    pub range: Range<usize>,
    /// Whether it is in BitNet's `TL1` or `TL2`.
    pub(super) table: Option<Table>,
    offset: u64,
}

/// A GGUF file, or one shard of one.
#[derive(Clone, Debug)]
pub struct GgufFile {
    /// Where it was opened; only a name for messages if it came from memory.
    pub path: PathBuf,
    /// 2 or 3.
    pub version: u32,
    /// Whether numbers are stored with the high byte first.
    pub big_endian: bool,
    /// Tensor data starts at multiples of this.
    pub alignment: u64,
    /// Keys in file order, as they are in the file.
    pub entries: Vec<Entry>,
    /// Tensors in file order.
    pub tensors: Vec<TensorInfo>,
    /// The whole file.
    pub bytes: Bytes,
    /// How BitNet's tables are cut.
    tilings: Vec<Tiling>,
    /// The file mapped once more, to read tables from: what is written anew need not stay in memory.
    lent: Bytes,
}

impl GgufFile {
    /// Reads the head of a file that is in memory or mapped. `path` is for messages.
    ///
    /// # Errors
    /// One that names the key or the tensor, for everything that is not as the format says.
    pub fn parse(bytes: Bytes, path: &Path, codecs: &Registry, type_42: Type42) -> Result<Self, Error> {
        let at = |problem: Problem| problem.at_path(path);
        let mut cursor = Cursor::new(&bytes);
        let (version, tensor_count, entry_count) = header(&mut cursor).map_err(at)?;
        let big_endian = cursor.big_endian;
        let file = path.display().to_string();
        let entries = entries(&mut cursor, entry_count).map_err(|e| e.within(&file))?;
        let alignment = alignment(&entries).map_err(|e| e.within(&file))?;
        let mut tensors = infos(&mut cursor, tensor_count).map_err(|e| e.within(&file))?;
        tables::mark(&mut tensors);
        let data_start = match tensors.is_empty() {
            true => cursor.position() as u64,
            false => align_up(cursor.position() as u64, alignment).map_err(at)?,
        };
        let layout = Layout { data_start, file_len: bytes.len() as u64, alignment, big_endian, codecs };
        layout.place(&mut tensors, type_42).map_err(|e| e.within(&file))?;
        let lent = bytes.clone();
        let path = path.to_owned();
        Ok(Self { path, version, big_endian, alignment, entries, tensors, bytes, tilings: vec![], lent })
    }

    /// The matrices in BitNet's tables, and their shapes.
    pub(super) fn tables(&self) -> impl Iterator<Item = (Table, [usize; 2])> {
        self.tensors.iter().filter_map(|t| Some((t.table?, tables::matrix(&t.shape).ok()?)))
    }

    /// Says how they are cut, and maps the file once more if it has any and was not `in_memory`.
    ///
    /// # Errors
    /// If it cannot be mapped or has changed.
    pub(super) fn with_tilings(mut self, tilings: &[Tiling], in_memory: bool) -> Result<Self, Error> {
        self.tilings = tilings.to_vec();
        if self.tables().next().is_some() && !in_memory {
            self.lent = map::map(&self.path)?;
            if self.lent.len() != self.bytes.len() {
                let problem = Problem::expected("a file that nobody changes", "another length");
                return Err(problem.at_path(&self.path));
            }
        }
        Ok(self)
    }

    /// What writes a tensor anew, if it must be.
    ///
    /// # Errors
    /// If it is not known how the tensor is cut.
    pub(super) fn repack(&self, tensor: &TensorInfo, codecs: &Registry) -> Result<Option<Repack<'_>>, Error> {
        let Some(table) = tensor.table else { return Ok(None) };
        let repack = || {
            let shape = tables::matrix(&tensor.shape)?;
            let tiling = *tiling::find(&self.tilings, shape).ok_or_else(|| table.unknown(shape))?;
            table.check(&tiling)?;
            let bytes = &self.lent[tensor.range.clone()];
            ternary::repack(codecs, tensor.shape, move |row, out| table.row(bytes, &tiling, row, out))
        };
        repack().map(Some).map_err(|p| p.at(format!("tensor `{}`", tensor.name)))
    }

    /// The value of a key, as the file spells it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entries.iter().find(|entry| entry.key == key).map(|entry| &entry.value)
    }

    /// The bytes of a tensor as they are in the file, shared.
    pub fn raw(&self, tensor: &TensorInfo) -> Bytes {
        self.bytes.slice(tensor.range.clone())
    }

    /// A tensor: its bytes are shared with the file, unless it is big-endian and they had to be turned round, or in one of
    /// BitNet's tables.
    ///
    /// Returns `None` for plain integers and f64, which are never weights.
    ///
    /// # Errors
    /// If the bytes do not fit shape and codec, which `parse` has excluded already for the same `codecs`, or it is not
    /// known how a table is cut.
    pub fn tensor(&self, tensor: &TensorInfo, codecs: &Registry) -> Result<Option<Encoded>, Error> {
        if let Some(repack) = self.repack(tensor, codecs)? {
            return repack.run(&format!("tensor `{}`", tensor.name)).map(Some);
        }
        let Some(codec) = codecs.by_gguf(tensor.type_id) else { return Ok(None) };
        let mut bytes = self.raw(tensor);
        let fields =
            types::swapped_fields(tensor.type_id).filter(|fields| self.big_endian && !fields.is_empty());
        if let Some(fields) = fields {
            bytes = swap(&bytes, codec.spec().block_bytes, fields);
        }
        bytes.truncate(bytes.len() - types::tail_bytes(tensor.type_id) as usize);
        Ok(Some(Encoded::new(&tensor.name, tensor.shape, codec, bytes)?))
    }

    /// What all numbers of a tensor are to be multiplied by, if that stands in the tensor itself (`i2_s`) or in another
    /// that exists for it.
    ///
    /// # Errors
    /// If it is no positive number.
    pub fn factor(&self, tensor: &TensorInfo) -> Result<Option<Encoded>, Error> {
        let place = || format!("tensor `{}`", tensor.name);
        let tail = types::tail_bytes(tensor.type_id) as usize;
        let at = match tensor.table {
            Some(_) => {
                let name = tables::factor_name(&tensor.name);
                let other = self.tensors.iter().find(|other| other.name == name);
                other.ok_or_else(|| Problem::Missing(format!("tensor `{name}`")).at(place()))?.range.start
            }
            None if tail > 0 => tensor.range.end - tail,
            None => return Ok(None),
        };
        let bytes = self.bytes.slice(at..at + 4);
        let factor = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        if !factor.is_finite() || factor <= 0.0 {
            return Err(Problem::expected("a factor above 0 for the codes", factor).at(place()));
        }
        let codec = nibble_quant::codec("f32");
        Ok(Some(Encoded::new(&tensor.name, Shape::from([1]), codec, bytes)?))
    }
}

/// Version and counts; finds out the byte order on the way.
fn header(cursor: &mut Cursor<'_>) -> Result<(u32, u64, u64), Problem> {
    let magic = cursor.take("the header", 4)?;
    if magic != MAGIC {
        return Err(Problem::expected(
            "a file that starts with `GGUF`",
            format!("{:?}", magic.escape_ascii().to_string()),
        ));
    }
    let mut version = cursor.u32("the header")?;
    if version & 0xFFFF == 0 {
        cursor.big_endian = true;
        version = version.swap_bytes();
    }
    if !(2..=3).contains(&version) {
        return Err(Problem::expected("GGUF version 2 or 3", format!("version {version}")));
    }
    let tensors = cursor.u64("the header")?;
    let entries = cursor.u64("the header")?;
    for (what, count, smallest) in
        [("tensor infos", tensors, SMALLEST_INFO), ("keys", entries, SMALLEST_ENTRY)]
    {
        let needed = count.checked_mul(smallest).ok_or(Problem::Overflow)?;
        if needed > cursor.left() {
            return Err(Problem::Truncated { what, needed, left: cursor.left() });
        }
    }
    Ok((version, tensors, entries))
}

fn entries(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<Entry>, Error> {
    let mut entries = Vec::new();
    let mut seen = HashSet::new();
    for index in 0..count {
        let key = cursor.name("a key").map_err(|p| p.at(format!("key number {index}")))?;
        let place = format!("key `{key}`");
        if !seen.insert(key.clone()) {
            return Err(Problem::Duplicate.at(place));
        }
        entries.push(cursor.entry(key).map_err(|p| p.at(place))?);
    }
    Ok(entries)
}

fn alignment(entries: &[Entry]) -> Result<u64, Error> {
    let Some(entry) = entries.iter().find(|e| e.key == "general.alignment") else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    match (entry.value_type, &entry.value) {
        (ValueType::U32, Value::Int(n)) if n.count_ones() == 1 && *n <= i128::from(MAX_ALIGNMENT) => {
            Ok(*n as u64)
        }
        (found, value) => {
            let expected = format!("a power of two up to {MAX_ALIGNMENT} as u32");
            Err(Problem::expected(expected, format!("{value} as {found:?}")).at("key `general.alignment`"))
        }
    }
}

fn infos(cursor: &mut Cursor<'_>, count: u64) -> Result<Vec<TensorInfo>, Error> {
    let mut infos = Vec::new();
    let mut seen = HashSet::new();
    for index in 0..count {
        let name = cursor.name("a tensor name").map_err(|p| p.at(format!("tensor number {index}")))?;
        let place = format!("tensor `{name}`");
        if !seen.insert(name.clone()) {
            return Err(Problem::Duplicate.at(place));
        }
        infos.push(info(cursor, name).map_err(|p| p.at(place))?);
    }
    Ok(infos)
}

fn info(cursor: &mut Cursor<'_>, name: String) -> Result<TensorInfo, Problem> {
    let n_dims = cursor.u32("the number of dimensions")?;
    if n_dims > MAX_DIMS as u32 {
        return Err(Problem::expected(format!("at most {MAX_DIMS} dimensions"), n_dims));
    }
    let mut dims = Vec::with_capacity(n_dims as usize);
    for _ in 0..n_dims {
        let dim = cursor.u64("a dimension")?;
        if dim == 0 || dim > i64::MAX as u64 {
            return Err(Problem::expected("dimensions from 1 to 2^63 - 1", dim));
        }
        dims.push(usize::try_from(dim).map_err(|_| Problem::Overflow)?);
    }
    dims.reverse();
    let shape = Shape::new(&dims).ok_or(Problem::Overflow)?;
    let type_id = cursor.u32("a tensor type")?;
    let offset = cursor.u64("a tensor offset")?;
    Ok(TensorInfo { name, shape, type_id, range: 0..0, table: None, offset })
}

/// What is needed to find where tensors lie.
struct Layout<'a> {
    data_start: u64,
    file_len: u64,
    alignment: u64,
    big_endian: bool,
    codecs: &'a Registry,
}

impl Layout<'_> {
    /// Gives each tensor its range, in the one meaning of type 42 that fits the file.
    fn place(&self, tensors: &mut [TensorInfo], type_42: Type42) -> Result<(), Error> {
        let has_42 = tensors.iter().any(is_42);
        let meaning = match type_42 {
            _ if !has_42 => Q2_0,
            Type42::Blocks64 => Q2_0,
            Type42::Blocks128 => PQ2_0,
            Type42::Detect => self.meaning_of_42(tensors)?,
        };
        let ranges = self.ranges(tensors, meaning)?;
        for (tensor, range) in tensors.iter_mut().zip(ranges) {
            tensor.range = range;
            tensor.type_id = if is_42(tensor) { meaning } else { tensor.type_id };
        }
        Ok(())
    }

    /// The type whose blocks explain where tensors lie; where both do, the one that explains the file's length too.
    fn meaning_of_42(&self, tensors: &[TensorInfo]) -> Result<u32, Error> {
        let endless = Layout { file_len: u64::MAX, ..*self };
        match (endless.ranges(tensors, Q2_0), endless.ranges(tensors, PQ2_0)) {
            (Ok(_), Err(_)) => Ok(Q2_0),
            (Err(_), Ok(_)) => Ok(PQ2_0),
            (Err(one), Err(other)) if one.to_string() == other.to_string() => Err(one), // not about type 42
            (Err(_), Err(_)) => {
                Err(ambiguous(tensors, "fits neither; it is corrupt, or 42 means something else in it"))
            }
            (Ok(_), Ok(_)) => match (self.ends_well(tensors, Q2_0), self.ends_well(tensors, PQ2_0)) {
                (true, false) => Ok(Q2_0),
                (false, true) => Ok(PQ2_0),
                (true, true) => {
                    Err(ambiguous(tensors, "fits both; the library takes a choice in OpenOptions::type_42"))
                }
                (false, false) => {
                    Err(ambiguous(tensors, "has the length of neither; it is truncated or corrupt"))
                }
            },
        }
    }

    /// Whether the file ends with its last tensor or with the padding after it.
    fn ends_well(&self, tensors: &[TensorInfo], meaning: u32) -> bool {
        let Ok(ranges) = self.ranges(tensors, meaning) else { return false };
        let end = ranges.last().map_or(self.data_start, |range| range.end as u64);
        self.file_len == end || align_up(end, self.alignment).is_ok_and(|padded| self.file_len == padded)
    }

    /// Where each tensor lies: one after the other, each padded, and all within the file.
    fn ranges(&self, tensors: &[TensorInfo], meaning_of_42: u32) -> Result<Vec<Range<usize>>, Error> {
        let mut expected = 0u64;
        let mut ranges = Vec::with_capacity(tensors.len());
        for tensor in tensors {
            let range = self.range(tensor, meaning_of_42, &mut expected);
            ranges.push(range.map_err(|p| p.at(format!("tensor `{}`", tensor.name)))?);
        }
        Ok(ranges)
    }

    fn range(
        &self,
        tensor: &TensorInfo,
        meaning_of_42: u32,
        expected: &mut u64,
    ) -> Result<Range<usize>, Problem> {
        let type_id = if is_42(tensor) { meaning_of_42 } else { tensor.type_id };
        let len = self.byte_len(tensor, type_id)?;
        if tensor.offset != *expected {
            return Err(Problem::expected(
                format!("offset {expected}, right after the tensor before"),
                tensor.offset,
            ));
        }
        let start = self.data_start.checked_add(tensor.offset).ok_or(Problem::Overflow)?;
        let end = start.checked_add(len).ok_or(Problem::Overflow)?;
        if end > self.file_len {
            let left = self.file_len.saturating_sub(start);
            return Err(Problem::Truncated { what: "data", needed: len, left });
        }
        *expected = align_up(tensor.offset.checked_add(len).ok_or(Problem::Overflow)?, self.alignment)?;
        Ok(start as usize..end as usize) // within the file, whose bytes are addressed already
    }

    fn byte_len(&self, tensor: &TensorInfo, type_id: u32) -> Result<u64, Problem> {
        let no_order = |what: &str| {
            let why = "has no byte order that is agreed on in big-endian files; convert the file";
            Err(Problem::Unsupported(format!("{what} {why}")))
        };
        match tensor.table {
            Some(table) if self.big_endian => return no_order(table.name()),
            Some(table) => return table.byte_len(&tensor.shape),
            None => {}
        }
        if let Some(codec) = self.codecs.by_gguf(type_id) {
            if self.big_endian && types::swapped_fields(type_id).is_none() {
                return no_order(&types::describe(type_id));
            }
            let blocks = byte_len(&tensor.shape, codec).map_err(Problem::Encoding)?;
            return (blocks as u64).checked_add(types::tail_bytes(type_id)).ok_or(Problem::Overflow);
        }
        match types::plain_bytes(type_id) {
            Some(bytes) => bytes.checked_mul(tensor.shape.elements() as u64).ok_or(Problem::Overflow),
            None => Err(Problem::Unsupported(format!("{} is not supported", types::describe(type_id)))),
        }
    }
}

/// Whether its type is 42 in one of the two meanings that are told apart.
fn is_42(tensor: &TensorInfo) -> bool {
    tensor.type_id == Q2_0 && tensor.table.is_none()
}

fn ambiguous(tensors: &[TensorInfo], why: &str) -> Error {
    let name = tensors.iter().find(|t| is_42(t)).map_or("", |t| &t.name);
    let found = format!("a file that {why}");
    Problem::expected("tensor type 42 in blocks of 64 or of 128", found).at(format!("tensor `{name}`"))
}

/// The next multiple of a power of two.
pub(super) fn align_up(n: u64, alignment: u64) -> Result<u64, Problem> {
    n.checked_next_multiple_of(alignment).ok_or(Problem::Overflow)
}

/// A copy with the fields of each block turned round.
fn swap(bytes: &[u8], block_bytes: usize, fields: &[(usize, usize)]) -> Bytes {
    let mut bytes = bytes.to_vec();
    for block in bytes.chunks_exact_mut(block_bytes) {
        for &(start, width) in fields {
            block[start..start + width].reverse();
        }
    }
    bytes.into()
}
