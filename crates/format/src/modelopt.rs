//! `modelopt`: a directory that NVIDIA's ModelOpt wrote: four-bit floats (NVFP4) or eight-bit ones (FP8).
//!
//! NVFP4: `weight` `U8 [out, in / 2]`, low nibble first, `weight_scale` `F8_E4M3 [out, in / 16]` and `weight_scale_2`, a
//! factor for the tensor. FP8: `weight` `F8_E4M3` and `weight_scale`. Both scales are multiplied by.
//! The algorithm stands in `hf_quant_config.json` or in `quantization_config`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory, fp8, mlx,
    scheme::{Module, Pieces, Scheme},
};
use nibble_quant::Registry;
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The container.
pub(crate) struct ModelOpt;

impl Container for ModelOpt {
    fn name(&self) -> &'static str {
        "modelopt"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `modelopt`, or `hf_quant_config.json`: NVFP4, FP8"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        match directory::method(path, head) {
            Some(method) => method == "modelopt",
            None => {
                let none = |root: serde_json::Map<String, Json>| {
                    root.get("quantization_config").is_none_or(Json::is_null)
                };
                path.join("hf_quant_config.json").is_file() && directory::peek(path, head).is_some_and(none)
            }
        }
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let file = path.join("hf_quant_config.json");
            let (settings, place) = match config.root.get("quantization_config") {
                Some(own @ Json::Object(_)) => (own.clone(), "config.json: key `quantization_config`"),
                _ => (
                    directory::json(&file)?["quantization"].clone(),
                    "hf_quant_config.json: key `quantization`",
                ),
            };
            match settings.get("quant_algo").and_then(Json::as_str) {
                Some("NVFP4") => Ok(Box::new(Algorithm::Nvfp4)),
                Some("FP8") => Ok(Box::new(Algorithm::Fp8)),
                other => {
                    let what =
                        format!("ModelOpt with quant_algo {other:?} is not supported, only NVFP4 and FP8");
                    Err(Problem::Unsupported(what).at(place))
                }
            }
        })
    }
}

enum Algorithm {
    Nvfp4,
    Fp8,
}

impl Scheme for Algorithm {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight_scale"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".weight", ".weight_scale_2"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        match self {
            Self::Fp8 => {
                let weight = module.get_as(".weight", &["F8_E4M3"])?;
                fp8::rows(module, weight, module.get(".weight_scale")?).map(Some)
            }
            Self::Nvfp4 => {
                let factor = module.get_as(".weight_scale_2", &["F32"])?.numbers()?;
                nvfp4(module, ".weight", &factor).map(Some)
            }
        }
    }
}

/// Four-bit floats in pairs, under a scale for 16 of them and one factor.
pub(crate) fn nvfp4<'a>(module: &Module<'a>, codes: &str, factor: &[f32]) -> Result<Pieces<'a>, Problem> {
    let packed = module.get_as(codes, &["U8"])?;
    let [outputs, pairs] = packed.matrix("[out, in / 2]")?;
    let inputs = pairs.checked_mul(2).ok_or(Problem::Overflow)?;
    let scales = module.get_as(".weight_scale", &["F8_E4M3", "U8"])?;
    if !inputs.is_multiple_of(16) {
        return Err(Problem::expected("rows in groups of 16", inputs));
    }
    scales.check(".weight_scale", &[outputs, inputs / 16])?;
    let &[factor] = factor else {
        return Err(Problem::expected("one factor for the tensor", factor.len()));
    };
    let shape = Shape::new(&[outputs, inputs]).ok_or(Problem::Overflow)?;
    let weight = mlx::float_blocks(module, "nvfp4", shape, packed.bytes, scales.bytes)?;
    Ok(vec![(String::new(), weight), (".scale".into(), module.floats(&[factor])?)])
}
