//! `mxfp4`: a directory whose experts are four-bit floats under powers of two, as gpt-oss keeps them.
//!
//! `P_blocks` `U8 [experts, rows, groups, 16]` and `P_scales` `U8 [experts, rows, groups]`: element 2i of a group of 32 is
//! the low nibble of byte i. Rows are outputs. Rows of `gate_up_proj` are gate and up in turn; here all gates come first.
//! Source: transformers, `integrations/mxfp4.py`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory, gpt_oss, mlx,
    repack::{Piece, Repack},
    scheme::{Module, Pieces, Scheme},
};
use nibble_quant::Registry;
use nibble_tensor::Shape;
use std::path::Path;

/// The container.
pub(crate) struct Mxfp4;

impl Container for Mxfp4 {
    fn name(&self) -> &'static str {
        "mxfp4"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `mxfp4`: experts as gpt-oss keeps them"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| method == "mxfp4")
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |_| Ok(Box::new(Experts)))
    }
}

struct Experts;

impl Scheme for Experts {
    fn marks(&self) -> &'static [&'static str] {
        &["_blocks"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &["_scales"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let (blocks, scales) = (module.get_as("_blocks", &["U8"])?, module.get_as("_scales", &["U8"])?);
        let &[experts, rows, groups, 16] = blocks.dims() else {
            let expected = "shape [experts, rows, groups, 16]";
            return Err(Problem::expected(expected, format!("{:?}", blocks.dims())));
        };
        scales.check("_scales", &[experts, rows, groups])?;
        let columns = groups.checked_mul(32).ok_or(Problem::Overflow)?;
        let shape = Shape::new(&[experts, rows, columns]).ok_or(Problem::Overflow)?;
        let mut weight = mlx::float_blocks(module, "mxfp4", shape, blocks.bytes, scales.bytes)?;
        if module.name.ends_with("gate_up_proj") {
            weight = gates_first(weight, rows)?;
        }
        Ok(Some(vec![(String::new(), weight)]))
    }
}

/// The even rows of each matrix, then the odd ones.
fn gates_first<'a>(weight: Piece<'a>, rows: usize) -> Result<Piece<'a>, Problem> {
    let Piece::Repack(Repack { shape, codec, fill }) = weight else { return Ok(weight) };
    if !rows.is_multiple_of(2) {
        return Err(Problem::expected("as many rows for gates as for ups", rows));
    }
    Repack::piece(shape, codec, move |wanted, out| {
        let row_bytes = out.len() / wanted.len().max(1);
        for (row, out) in wanted.zip(out.chunks_exact_mut(row_bytes)) {
            let (matrix, row) = (row / rows, row % rows);
            let from = matrix * rows + gpt_oss::gates_first(row, rows);
            fill(from..from + 1, out)?;
        }
        Ok(())
    })
}
