//! How a directory packs its matrices: what each container adds to the plain one.

use crate::{
    Problem,
    repack::{Piece, Repack},
    safetensors::{SafetensorsFile, TensorInfo},
};
use nibble_quant::{
    Codec, Encoded, Registry,
    grouped::{Float, GROUPS, Grouped, Second},
};
use nibble_tensor::{Bytes, Shape};
use std::collections::BTreeMap;

/// The tensors of a directory by name: those that stay mapped, and maps of the same files that are given back once
/// everything is written anew that must be.
pub(crate) struct Tensors<'a> {
    pub by_name: BTreeMap<&'a str, (&'a SafetensorsFile, &'a SafetensorsFile)>,
}

/// A packed matrix: the tensors `name` + ending.
pub(crate) struct Module<'a> {
    pub name: &'a str,
    pub tensors: &'a Tensors<'a>,
    pub codecs: &'a Registry,
}

/// One of its tensors.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub info: &'a TensorInfo,
    /// Its bytes, in the map that is given back.
    pub bytes: &'a [u8],
    kept: &'a SafetensorsFile,
}

/// What a module becomes: the endings of canonical names (`` for the matrix, `.scale`, `.order`, ...) and tensors.
pub(crate) type Pieces<'a> = Vec<(String, Piece<'a>)>;

/// A way to pack matrices.
pub(crate) trait Scheme: Sync {
    /// Endings, one of which every packed module has.
    fn marks(&self) -> &'static [&'static str];

    /// Endings of the other tensors that belong to a packed module.
    fn companions(&self) -> &'static [&'static str];

    /// What a module becomes; `None` if it is not packed after all.
    ///
    /// # Errors
    /// If a tensor is missing or has another type or shape than the scheme says.
    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem>;

    /// Bits to which the inputs of packed matrices were rounded in training.
    fn activation_bits(&self) -> Option<usize> {
        None
    }

    /// The block of the Hadamard transform of rotated matrices.
    fn rotation_block(&self) -> Option<usize> {
        None
    }
}

impl<'a> Module<'a> {
    /// A tensor of the module, if it is there.
    pub fn find(&self, ending: &str) -> Option<Part<'a>> {
        let name = format!("{}{ending}", self.name);
        let (kept, lent) = self.tensors.by_name.get(name.as_str())?;
        let info = kept.tensors.get(&name)?;
        Some(Part { info, bytes: &lent.bytes[info.range.clone()], kept })
    }

    /// A tensor of the module.
    ///
    /// # Errors
    /// [`Problem::Missing`]
    pub fn get(&self, ending: &str) -> Result<Part<'a>, Problem> {
        self.find(ending).ok_or_else(|| Problem::Missing(format!("tensor `{}{ending}` beside it", self.name)))
    }

    /// A tensor of one of some types.
    ///
    /// # Errors
    /// [`Problem::Missing`], or if its type is another.
    pub fn get_as(&self, ending: &str, dtypes: &[&str]) -> Result<Part<'a>, Problem> {
        let part = self.get(ending)?;
        match dtypes.contains(&part.info.dtype.as_str()) {
            true => Ok(part),
            false => {
                let what = format!("`{}{ending}` of type {}", self.name, dtypes.join(" or "));
                Err(Problem::expected(what, &part.info.dtype))
            }
        }
    }

    /// A built-in codec.
    ///
    /// # Errors
    /// If the program's registry has none of that name.
    pub fn codec(&self, name: &str) -> Result<&'static dyn Codec, Problem> {
        self.codecs.by_name(name).ok_or_else(|| Problem::Missing(format!("a codec named {name}")))
    }

    /// Numbers as a tensor in single precision.
    ///
    /// # Errors
    /// If there are none.
    pub fn floats(&self, numbers: &[f32]) -> Result<Piece<'a>, Problem> {
        let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
        let shape = Shape::from([numbers.len()]);
        let tensor = Encoded::new(self.name, shape, self.codec("f32")?, Bytes::from(bytes));
        Ok(Piece::InPlace(tensor.map_err(|e| Problem::Encoding(e.problem))?))
    }
}

impl<'a> Part<'a> {
    /// Its dimensions.
    pub fn dims(&self) -> &'a [usize] {
        &self.info.shape
    }

    /// Its two dimensions.
    ///
    /// # Errors
    /// If it has more or fewer, or no elements.
    pub fn matrix(&self, what: &str) -> Result<[usize; 2], Problem> {
        match *self.dims() {
            [rows, columns] if rows > 0 && columns > 0 => Ok([rows, columns]),
            _ => Err(Problem::expected(format!("shape {what}"), format!("{:?}", self.dims()))),
        }
    }

    /// Checks its dimensions.
    ///
    /// # Errors
    /// If they are others.
    pub fn check(&self, ending: &str, dims: &[usize]) -> Result<(), Problem> {
        if self.dims() == dims {
            return Ok(());
        }
        Err(Problem::expected(format!("`{ending}` of shape {dims:?}"), format!("{:?}", self.dims())))
    }

    /// Its bytes, in the map that stays.
    pub fn mapped(&self) -> Bytes {
        self.kept.raw(self.info)
    }

    /// The type of its floats.
    ///
    /// # Errors
    /// If it has none.
    pub fn float(&self) -> Result<Float, Problem> {
        match self.info.dtype.as_str() {
            "F16" => Ok(Float::F16),
            "BF16" => Ok(Float::Bf16),
            "F32" => Ok(Float::F32),
            other => Err(Problem::expected("F16, BF16 or F32", other)),
        }
    }

    /// Its floats.
    ///
    /// # Errors
    /// If it has none.
    pub fn numbers(&self) -> Result<Vec<f32>, Problem> {
        let float = self.float()?;
        Ok(self.bytes.chunks_exact(float.bytes()).map(|bytes| float.read(bytes)).collect())
    }

    /// Its 32-bit integers.
    pub fn words(&self) -> impl Iterator<Item = i32> + 'a {
        self.bytes.as_chunks::<4>().0.iter().map(|word| i32::from_le_bytes(*word))
    }

    /// Its 16-bit integers.
    pub fn halves(&self) -> impl Iterator<Item = u16> + 'a {
        self.bytes.as_chunks::<2>().0.iter().map(|half| u16::from_le_bytes(*half))
    }
}

/// Integers in groups along a row: what most schemes come down to.
pub(crate) struct Groups<S, Q> {
    /// Matrices, rows and columns.
    pub shape: Shape,
    pub bits: usize,
    /// Numbers under one scale.
    pub group: usize,
    pub second: Second,
    pub float: Float,
    /// Scale and second number of a group of a row.
    pub numbers: S,
    /// Writes the codes of a row.
    pub codes: Q,
}

impl<S, Q> Groups<S, Q>
where
    S: Fn(usize, usize) -> (f32, f32) + Sync,
    Q: Fn(usize, &mut [u8]) + Sync,
{
    /// The matrix in the codec whose blocks fit its groups.
    ///
    /// # Errors
    /// If none does.
    pub fn piece<'a>(self) -> Result<Piece<'a>, Problem>
    where
        S: 'a,
        Q: 'a,
    {
        let group = self.group;
        let fits = |len: &&usize| group.is_multiple_of(**len);
        let codec = GROUPS.iter().find(fits);
        let codec = codec.and_then(|&len| Grouped::find(self.bits, len, self.second, self.float));
        let codec = codec.ok_or_else(|| {
            Problem::Unsupported(format!("{} bits in groups of {group} are not supported", self.bits))
        })?;
        let Groups { shape, numbers, codes, .. } = self;
        let (len, bytes, columns) = (codec.spec().block_len, codec.spec().block_bytes, shape.row_len());
        Repack::piece(shape, codec, move |rows, out| {
            let mut row_codes = vec![0; columns];
            for (row, out) in rows.zip(out.chunks_exact_mut(columns / len * bytes)) {
                codes(row, &mut row_codes);
                let blocks = row_codes.chunks_exact(len).zip(out.chunks_exact_mut(bytes));
                for (index, (codes, block)) in blocks.enumerate() {
                    let (scale, second) = numbers(row, index * len / group);
                    codec.put(scale, second, codes, block);
                }
            }
            Ok(())
        })
    }
}

/// A number of a configuration, or its default.
///
/// # Errors
/// If it is no whole number of at least 1.
pub(crate) fn count(config: &serde_json::Value, key: &str, default: usize) -> Result<usize, Problem> {
    match config.get(key) {
        None | Some(serde_json::Value::Null) => Ok(default),
        Some(value) => match value.as_u64() {
            Some(n) if (1..=1 << 20).contains(&n) => Ok(n as usize),
            _ => Err(Problem::expected(format!("`{key}` from 1 to 1048576"), format!("{value:.40}"))),
        },
    }
}
