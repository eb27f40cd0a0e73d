//! `bitnet`: a directory whose matrices are ternary, four numbers to a byte, across rows, with one factor a matrix.
//!
//! Byte `(r, c)` of a `U8 [out / 4, in]` tensor holds, in bits 2i and 2i + 1, row `i * out / 4 + r` of column `c` plus
//! one. They become blocks of a ternary codec with scale 1, and the factor the tensor `.scale`.
//! Source: transformers, `integrations/bitnet.py`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    repack::Piece,
    scheme::{Module, Part, Pieces, Scheme},
    ternary::repack,
};
use nibble_quant::Registry;
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The container.
pub(crate) struct BitNet;

impl Container for BitNet {
    fn name(&self) -> &'static str {
        "bitnet"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `bitnet`: ternary"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| method == "bitnet")
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            Ok(Box::new(Packing::from_config(&config.root["quantization_config"])?))
        })
    }
}

/// How the factor enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// `bitlinear`: the product is divided by `weight_scale`.
    Divide,
    /// `autobitlinear`: it is multiplied by it.
    Multiply,
}

impl Packing {
    /// Reads `quantization_config`.
    fn from_config(config: &Json) -> Result<Self, Error> {
        let text = |key: &str, default: &'static str| match config.get(key) {
            None | Some(Json::Null) => default.to_owned(),
            Some(Json::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        };
        let refuse = |key: &str, found: String| {
            let what = format!("BitNet with {key} {found:.60} is not supported");
            Err(Problem::Unsupported(what).at("config.json: key `quantization_config`"))
        };
        let mode = text("quantization_mode", "offline");
        if mode != "offline" {
            return refuse("quantization_mode", mode);
        }
        if config.get("use_rms_norm").and_then(Json::as_bool) == Some(true) {
            return refuse("use_rms_norm", "true".into());
        }
        match text("linear_class", "bitlinear").as_str() {
            "bitlinear" => Ok(Self::Divide),
            "autobitlinear" => Ok(Self::Multiply),
            other => refuse("linear_class", other.to_owned()),
        }
    }
}

impl Scheme for Packing {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight_scale"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".weight"]
    }

    fn activation_bits(&self) -> Option<usize> {
        Some(8)
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let factor = module.get(".weight_scale")?.numbers()?;
        let [factor] = factor[..] else {
            return Err(Problem::expected("one number in `.weight_scale`", factor.len()));
        };
        let factor = if *self == Self::Divide { factor.recip() } else { factor };
        let packed = module.get_as(".weight", &["U8"])?;
        let (weight, factor) = (weight(module, packed)?, module.floats(&[factor])?);
        Ok(Some(vec![(String::new(), weight), (".scale".into(), factor)]))
    }
}

/// The matrix `[out, in]` of a packed tensor.
fn weight<'a>(module: &Module<'a>, packed: Part<'a>) -> Result<Piece<'a>, Problem> {
    let [packed_rows, row_len] = packed.matrix("[out / 4, in]")?;
    let shape = Shape::new(&[packed_rows.checked_mul(4).ok_or(Problem::Overflow)?, row_len]);
    let fill = move |row: usize, numbers: &mut [f32]| {
        let (quarter, packed_row) = (row / packed_rows, row % packed_rows);
        for (value, byte) in numbers.iter_mut().zip(&packed.bytes[packed_row * row_len..]) {
            *value = ternary(byte >> (2 * quarter) & 3)?;
        }
        Ok(())
    };
    repack(module.codecs, shape.ok_or(Problem::Overflow)?, fill).map(Piece::Repack)
}

fn ternary(code: u8) -> Result<f32, Problem> {
    match code {
        0..=2 => Ok(f32::from(code) - 1.0),
        _ => Err(Problem::expected("ternary codes 0 to 2", code)),
    }
}
