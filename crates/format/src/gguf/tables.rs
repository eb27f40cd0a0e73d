//! `TL1` and `TL2`: ternary matrices in the order in which the table kernels of Microsoft's BitNet read them.
//!
//! A matrix of M rows and K columns is cut into tiles of BM x BK, a tile into strips of bm rows, and these into steps of a
//! few columns ([`Tiling`]). A nibble of 0 to 8 is a pair, `3a + b + 4` with a, b from -1 to 1; one of 0 to 13 is the size
//! of a triple, `9a + 3b + c`. Indices below are those of arrays, outermost first.
//!
//! `TL1`: bytes `[M/BM][K/BK][BM/bm][BK/s][bm/16][s/4][16]`, s = 256/bm; a byte is four columns of a row, the high nibble
//! the first two; rows count through the third, fifth and last index.
//!
//! `TL2`, bm = 32: of the first K3 = K - K mod BK columns, bytes `[M/BM][K3/BK][BM/32][BK/6][32]`, two triples of a row
//! each, then signs, 16-bit words `[M/BM][K3/BK][BM/32][BK/24][16]`: bit `15 - 2c - h` of word r tells whether triple c of
//! the 24 columns of row 16h + r is negative. Of the other K2 columns, bytes `[M/BM][K2/32][BM/32][8][32]`, two pairs each.
//! Within 32 bytes, rows 8 to 15 and 16 to 23 have changed places. Zeros follow.
//!
//! One factor for the matrix is a tensor of its own, `NAME_scale`, and the only sign that a type is one of these: 38 was
//! another type once, 39 and 42 are others in files of llama.cpp.
//! Source: microsoft/BitNet 16da220a, `utils/convert-hf-to-gguf-bitnet.py`.

use super::{TensorInfo, tiling::Tiling};
use crate::Problem;
use nibble_tensor::Shape;
use std::collections::HashSet;

/// Tensor type of the factors.
const F32: u32 = 0;

/// A layout of ternary codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Table {
    /// Pairs.
    Tl1,
    /// Triples, then pairs.
    Tl2,
}

/// The name of the tensor that holds the factor of another.
pub(super) fn factor_name(name: &str) -> String {
    format!("{name}_scale")
}

/// Finds the tensors of these layouts.
pub(super) fn mark(tensors: &mut [TensorInfo]) {
    if !tensors.iter().any(|tensor| Table::of(tensor.type_id).is_some()) {
        return;
    }
    let single = |tensor: &&TensorInfo| tensor.type_id == F32 && tensor.shape.elements() == 1;
    let singles: HashSet<String> = tensors.iter().filter(single).map(|t| t.name.clone()).collect();
    for tensor in tensors {
        tensor.table = Table::of(tensor.type_id).filter(|_| singles.contains(&factor_name(&tensor.name)));
    }
}

/// Rows and columns.
///
/// # Errors
/// If there are other dimensions.
pub(super) fn matrix(shape: &Shape) -> Result<[usize; 2], Problem> {
    shape.dims().try_into().map_err(|_| Problem::expected("a matrix", format!("shape {shape}")))
}

impl Table {
    /// What a tensor type may mean.
    fn of(type_id: u32) -> Option<Self> {
        match type_id {
            38 => Some(Self::Tl1),
            39 | 42 => Some(Self::Tl2),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tl1 => "TL1",
            Self::Tl2 => "TL2",
        }
    }

    /// What is missing if nobody says how a matrix is cut.
    pub fn unknown(self, [rows, columns]: [usize; 2]) -> Problem {
        let name = self.name();
        Problem::Missing(format!(
            "the tile sizes (m, k, bm, bk and bmm) of {name} for {rows} x {columns}, which no published kernels for the \
             whole model have, in a `kernel_config.ini` beside the file"
        ))
    }

    /// Bytes of a tensor with the zeros behind it, which do not depend on how it is tiled.
    ///
    /// # Errors
    /// If it is no matrix, or one that cannot be written so.
    pub fn byte_len(self, shape: &Shape) -> Result<u64, Problem> {
        let [rows, columns] = matrix(shape)?.map(|n| n as u64);
        match self {
            Self::Tl1 => Ok(rows * columns / 4),
            Self::Tl2 => {
                let triples = columns.checked_sub(256).map(|columns| rows * columns / 3);
                let triples = triples.ok_or_else(|| Problem::expected("at least 256 columns", columns))?;
                Ok(triples.checked_mul(5).ok_or(Problem::Overflow)? / 8 + rows * 64)
            }
        }
    }

    /// Checks that a tiling divides its matrix.
    ///
    /// # Errors
    /// If it does not.
    pub fn check(self, t: &Tiling) -> Result<(), Problem> {
        let step = match (self, t.strip) {
            (Self::Tl1, 32 | 64) => Some(256 / t.strip),
            (Self::Tl2, 32) => Some(24),
            _ => None,
        };
        let rest = t.columns % t.tile_columns;
        let fits = step.is_some_and(|step| t.tile_columns.is_multiple_of(step))
            && t.rows.is_multiple_of(t.tile_rows)
            && t.tile_rows.is_multiple_of(t.strip)
            && (rest == 0 || self == Self::Tl2 && rest.is_multiple_of(32));
        if fits && self.used_bytes(t) <= self.byte_len(&Shape::from([t.rows, t.columns]))? {
            return Ok(());
        }
        let expected = format!("tiles of {} that fit {} x {}", self.name(), t.rows, t.columns);
        let found = format!("bm {}, bk {}, bmm {}", t.tile_rows, t.tile_columns, t.strip);
        Err(Problem::expected(expected, found))
    }

    /// Bytes without the zeros behind them.
    fn used_bytes(self, t: &Tiling) -> u64 {
        let pairs = t.columns % t.tile_columns;
        let bytes = match self {
            Self::Tl1 => t.rows * t.columns / 4,
            Self::Tl2 => t.rows * ((t.columns - pairs) / 24 * 5 + pairs / 4),
        };
        bytes as u64
    }

    /// Reads a row of a matrix whose tiling was checked.
    ///
    /// # Errors
    /// If a code is none.
    pub fn row(self, bytes: &[u8], t: &Tiling, row: usize, out: &mut [f32]) -> Result<(), Problem> {
        match self {
            Self::Tl1 => tl1(bytes, t, row, out),
            Self::Tl2 => tl2(bytes, t, row, out),
        }
    }
}

/// The place of a step of `step` columns among all of a matrix of `width` columns.
fn place(t: &Tiling, width: usize, row: usize, column: usize, step: usize) -> usize {
    let tile = row / t.tile_rows * (width / t.tile_columns) + column / t.tile_columns;
    let strip = tile * (t.tile_rows / t.strip) + row % t.tile_rows / t.strip;
    strip * (t.tile_columns / step) + column % t.tile_columns / step
}

fn tl1(bytes: &[u8], t: &Tiling, row: usize, out: &mut [f32]) -> Result<(), Problem> {
    let columns = 256 / t.strip;
    let own = row % t.strip / 16 * (4 * columns) + row % 16;
    for (step, out) in out.chunks_exact_mut(columns).enumerate() {
        let first = 64 * place(t, t.columns, row, step * columns, columns);
        for (four, out) in out.chunks_exact_mut(4).enumerate() {
            two_pairs(bytes[first + 16 * four + own], out)?;
        }
    }
    Ok(())
}

fn tl2(bytes: &[u8], t: &Tiling, row: usize, out: &mut [f32]) -> Result<(), Problem> {
    let width = t.columns - t.columns % t.tile_columns;
    let (sizes, rest) = bytes.split_at(t.rows * width / 6);
    let (signs, pairs) = rest.split_at(t.rows * width / 24);
    let (in_triples, in_pairs) = out.split_at_mut(width);
    let slot = match row % 32 {
        row @ 8..16 => row + 8,
        row @ 16..24 => row - 8,
        row => row,
    };
    for (step, out) in in_triples.chunks_exact_mut(24).enumerate() {
        let first = place(t, width, row, step * 24, 24);
        let at = 2 * (16 * first + row % 16);
        let negative = u16::from_le_bytes([signs[at], signs[at + 1]]) << (row % 32 / 16);
        for (c, out) in out.chunks_exact_mut(3).enumerate() {
            let size = sizes[32 * (4 * first + c / 2) + slot] >> (4 - 4 * (c % 2)) & 15;
            triple(size, negative << (2 * c) & 0x8000 != 0, out)?;
        }
    }
    let (width, t) = (in_pairs.len(), Tiling { tile_columns: 32, ..*t });
    for (step, out) in in_pairs.chunks_exact_mut(4).enumerate() {
        two_pairs(pairs[32 * place(&t, width, row, step * 4, 4) + slot], out)?;
    }
    Ok(())
}

/// Four numbers, the first two in the high nibble.
fn two_pairs(byte: u8, out: &mut [f32]) -> Result<(), Problem> {
    for (pair, out) in [byte >> 4, byte & 15].into_iter().zip(out.chunks_exact_mut(2)) {
        if pair > 8 {
            return Err(Problem::expected("codes of pairs from 0 to 8", pair));
        }
        out.copy_from_slice(&[pair / 3, pair % 3].map(|digit| f32::from(digit) - 1.0));
    }
    Ok(())
}

/// Three numbers.
fn triple(size: u8, negative: bool, out: &mut [f32]) -> Result<(), Problem> {
    if size > 13 {
        return Err(Problem::expected("codes of triples from 0 to 13", size));
    }
    let code = if negative { 13 - size } else { 13 + size };
    out.copy_from_slice(&[code / 9, code / 3 % 3, code % 3].map(|digit| f32::from(digit) - 1.0));
    Ok(())
}
