//! `fp8`: a directory whose matrices are eight-bit floats, with a scale for the tensor, for each row, or for each block.
//!
//! `weight` `F8_E4M3 [out, in]`; either `weight_scale_inv` `[ceil(out / R), ceil(in / C)]` with `weight_block_size` `[R, C]`
//! in `config.json`, or `weight_scale` (`[]`, `[1]`, `[out]` or `[out, 1]`). Both are multiplied by, whatever the name says.
//! Source: transformers, `integrations/finegrained_fp8.py`, `integrations/fbgemm_fp8.py`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    repack::{Piece, Repack},
    scheme::{Module, Part, Pieces, Scheme},
};
use nibble_quant::{Encoded, Registry};
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The container.
pub(crate) struct Fp8;

impl Container for Fp8 {
    fn name(&self) -> &'static str {
        "fp8"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `fp8` or `fbgemm_fp8`: a scale for blocks, rows or the tensor"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| ["fp8", "fbgemm_fp8"].contains(&method.as_str()))
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let block = block(&config.root["quantization_config"]);
            Ok(Box::new(Floats(block.map_err(|p| p.at("config.json: key `quantization_config`"))?)))
        })
    }
}

/// Rows and columns of a block.
struct Floats(Option<[usize; 2]>);

fn block(config: &Json) -> Result<Option<[usize; 2]>, Problem> {
    let Some(size) = config.get("weight_block_size").filter(|size| !size.is_null()) else { return Ok(None) };
    match serde_json::from_value::<[usize; 2]>(size.clone()) {
        Ok([rows, columns]) if rows > 0 && columns > 0 => Ok(Some([rows, columns])),
        _ => Err(Problem::expected("`weight_block_size` of two numbers above 0", format!("{size:.60}"))),
    }
}

impl Scheme for Floats {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight_scale_inv", ".weight_scale"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".weight"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let weight = module.get_as(".weight", &["F8_E4M3", "F8_E5M2"])?;
        let (ending, scale) = match module.find(".weight_scale_inv") {
            Some(scale) => (".weight_scale_inv", scale),
            None => (".weight_scale", module.get(".weight_scale")?),
        };
        match self.0 {
            Some(block) if weight.info.dtype == "F8_E4M3" => {
                let weight = blocks(module, weight, ending, scale, block)?;
                Ok(Some(vec![(String::new(), weight)]))
            }
            Some(_) => {
                Err(Problem::expected("weights of type F8_E4M3 with block scales", &weight.info.dtype))
            }
            None => rows(module, weight, scale).map(Some),
        }
    }
}

/// Floats under a scale for all or for each row: they stay where they are.
pub(crate) fn rows<'a>(
    module: &Module<'a>,
    weight: Part<'a>,
    scale: Part<'a>,
) -> Result<Pieces<'a>, Problem> {
    let [outputs, inputs] = weight.matrix("[out, in]")?;
    let codec = module.codec(if weight.info.dtype == "F8_E5M2" { "f8_e5m2" } else { "f8_e4m3" })?;
    let matrix = Encoded::new(module.name, Shape::from([outputs, inputs]), codec, weight.mapped());
    let matrix = Piece::InPlace(matrix.map_err(|e| Problem::Encoding(e.problem))?);
    Ok(vec![(String::new(), matrix), (".scale".into(), row_scales(module, scale, outputs)?)])
}

/// Scales of rows, or the one of all.
pub(crate) fn row_scales<'a>(
    module: &Module<'a>,
    scale: Part<'a>,
    outputs: usize,
) -> Result<Piece<'a>, Problem> {
    match *scale.dims() {
        [] | [1] | [1, 1] => {}
        [rows] | [rows, 1] if rows == outputs => {}
        _ => {
            let expected = format!("scales of shape [], [1], [{outputs}] or [{outputs}, 1]");
            return Err(Problem::expected(expected, format!("{:?}", scale.dims())));
        }
    }
    module.floats(&scale.numbers()?)
}

/// Floats under scales of blocks of rows and columns.
pub(crate) fn blocks<'a>(
    module: &Module<'a>,
    weight: Part<'a>,
    ending: &str,
    scale: Part<'a>,
    [block_rows, block_columns]: [usize; 2],
) -> Result<Piece<'a>, Problem> {
    let [outputs, inputs] = weight.matrix("[out, in]")?;
    let columns = inputs.div_ceil(block_columns);
    scale.check(ending, &[outputs.div_ceil(block_rows), columns])?;
    let fits = |len: &&usize| block_columns.is_multiple_of(**len) && inputs.is_multiple_of(**len);
    let len = *[128, 64, 32].iter().find(fits).ok_or_else(|| {
        Problem::Unsupported(format!(
            "blocks of {block_columns} columns in rows of {inputs} are not supported"
        ))
    })?;
    let codec = module.codec(&format!("f8_e4m3_{len}"))?;
    let scales = scale.numbers()?;
    let shape = Shape::new(&[outputs, inputs]).ok_or(Problem::Overflow)?;
    Repack::piece(shape, codec, move |rows, out| {
        for (row, out) in rows.zip(out.chunks_exact_mut(inputs / len * (len + 4))) {
            let codes = weight.bytes[row * inputs..][..inputs].chunks_exact(len);
            for (index, (codes, block)) in codes.zip(out.chunks_exact_mut(len + 4)).enumerate() {
                let scale = scales[row / block_rows * columns + index * len / block_columns];
                block[..4].copy_from_slice(&scale.to_le_bytes());
                block[4..].copy_from_slice(codes);
            }
        }
        Ok(())
    })
}
