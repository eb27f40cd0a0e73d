//! Ternary weights as BitNet checkpoints pack them: four to a byte, across rows, with one factor a matrix.
//!
//! Byte `(r, c)` of a `U8 [out / 4, in]` tensor holds, in bits 2i and 2i + 1, row `i * out / 4 + r` of column `c` plus
//! one. They become blocks of a ternary codec with scale 1, and the factor the tensor `.scale`.
//! Source: transformers, `integrations/bitnet.py`.

use crate::{Error, Problem};
use nibble_quant::{Codec, Encoded, Registry};
use nibble_tensor::{Bytes, Shape};
use serde_json::Value as Json;

/// Codecs that hold -1, 0 and 1 without loss, best first. The first whose blocks fit a row is taken.
const CODECS: &[&str] = &["tq2_0", "q2_0", "f16", "bf16", "f32"];

/// How the factor enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    /// `bitlinear`: the product is divided by `weight_scale`.
    Divide,
    /// `autobitlinear`: it is multiplied by it.
    Multiply,
}

impl Packing {
    /// Reads `quantization_config`.
    pub fn from_config(config: &Json) -> Result<Self, Error> {
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

    /// What the product is multiplied by.
    pub fn factor(self, weight_scale: f32) -> f32 {
        match self {
            Self::Divide => weight_scale.recip(),
            Self::Multiply => weight_scale,
        }
    }

    /// The matrix `[out, in]` of a packed tensor.
    pub fn weight(
        self,
        name: &str,
        packed: &Bytes,
        shape: &[usize],
        codecs: &Registry,
    ) -> Result<Encoded, Problem> {
        let &[packed_rows, row_len] = shape else {
            return Err(Problem::expected("shape [out / 4, in]", format!("{shape:?}")));
        };
        let rows = packed_rows.checked_mul(4).ok_or(Problem::Overflow)?;
        let shape = Shape::new(&[rows, row_len]).filter(|s| s.elements() > 0).ok_or(Problem::Overflow)?;
        let fits = |codec: &&'static dyn Codec| row_len.is_multiple_of(codec.spec().block_len);
        let codec = CODECS.iter().filter_map(|name| codecs.by_name(name)).find(fits);
        let codec = codec.ok_or_else(|| Problem::Missing("a codec for ternary weights".into()))?;
        let encode = codec
            .encoder()
            .ok_or_else(|| Problem::Encoding(nibble_quant::Problem::NoEncoder(codec.spec().name)))?;
        let row_bytes = row_len / codec.spec().block_len * codec.spec().block_bytes;
        let mut bytes = vec![0; rows.checked_mul(row_bytes).ok_or(Problem::Overflow)?];
        let mut row = vec![0.0; row_len];
        for (index, out) in bytes.chunks_exact_mut(row_bytes).enumerate() {
            let (quarter, packed_row) = (index / packed_rows, index % packed_rows);
            for (value, byte) in row.iter_mut().zip(&packed[packed_row * row_len..]) {
                *value = ternary(byte >> (2 * quarter) & 3)?;
            }
            encode.encode_row(&row, None, out);
        }
        Encoded::new(name, shape, codec, bytes.into()).map_err(|e| Problem::Encoding(e.problem))
    }
}

fn ternary(code: u8) -> Result<f32, Problem> {
    match code {
        0..=2 => Ok(f32::from(code) - 1.0),
        _ => Err(Problem::expected("ternary codes 0 to 2", code)),
    }
}
