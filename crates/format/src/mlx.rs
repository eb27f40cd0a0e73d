//! `mlx`: a directory whose matrices MLX packed: 32-bit words of codes, with scales and biases in tensors of their own.
//!
//! A module is packed if it has `.scales`. `quantization` in `config.json` says bits, group and mode for all, and for
//! single modules by their path. Affine codes are a dense stream along a row, lowest bit first: `w = q * scale + bias`.
//! The float modes have a byte for a scale and no biases: `mxfp4`, `nvfp4`, `mxfp8`.
//! Source: ml-explore/mlx, `mlx/ops.cpp`, `python/mlx/nn/layers/quantized.py`; mlx-lm, `utils.py`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    repack::{Piece, Repack, unpack, words_of},
    scheme::{Groups, Module, Part, Pieces, Scheme, count},
};
use nibble_quant::{Registry, grouped::Second};
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The container.
pub(crate) struct Mlx;

impl Container for Mlx {
    fn name(&self) -> &'static str {
        "mlx"
    }

    fn about(&self) -> &'static str {
        "a directory with `quantization`: affine 1 to 8 bits in groups of 32, 64 or 128, `mxfp4`, `nvfp4`, `mxfp8`, settings for single modules"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        // A copy of the same settings stands in `quantization_config`; other tools' files have only that.
        directory::peek(path, head).is_some_and(|root| root.get("quantization").is_some_and(Json::is_object))
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let kind = config.root.get("model_type").and_then(Json::as_str).unwrap_or_default();
            if kind.starts_with("prism_hadamard") {
                let what =
                    format!("model_type {kind:?} (rotated Prism weights for MLX) is not supported yet");
                return Err(Problem::Unsupported(what).at("config.json"));
            }
            Ok(Box::new(Packed(config.root["quantization"].clone())))
        })
    }
}

/// The settings of `config.json`.
struct Packed(Json);

/// How one module is packed.
struct Settings {
    bits: usize,
    group: usize,
    mode: Mode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Affine,
    Mxfp4,
    Nvfp4,
    Mxfp8,
}

/// Modes by name, with the group and the bits that they have if nothing is said.
const MODES: &[(&str, Mode, usize, usize)] = &[
    ("affine", Mode::Affine, 64, 4),
    ("mxfp4", Mode::Mxfp4, 32, 4),
    ("nvfp4", Mode::Nvfp4, 16, 4),
    ("mxfp8", Mode::Mxfp8, 32, 8),
];

impl Packed {
    fn settings(&self, module: &str) -> Result<Settings, Problem> {
        let own = [module, module.strip_prefix("language_model.").unwrap_or(module)];
        let own = own.iter().find_map(|path| self.0.get(path)).filter(|own| own.is_object());
        let settings = own.unwrap_or(&self.0);
        let name = match settings.get("mode") {
            None | Some(Json::Null) => "affine",
            Some(name) => name.as_str().unwrap_or("(not a text)"),
        };
        let mode = MODES.iter().find(|(known, ..)| *known == name);
        let &(_, mode, group, bits) =
            mode.ok_or_else(|| Problem::Unsupported(format!("MLX mode {name:.40?} is not known")))?;
        Ok(Settings {
            bits: count(settings, "bits", bits)?,
            group: count(settings, "group_size", group)?,
            mode,
        })
    }
}

impl Scheme for Packed {
    fn marks(&self) -> &'static [&'static str] {
        &[".scales"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".weight", ".biases"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let settings = self.settings(module.name)?;
        let codes = module.get_as(".weight", &["U32"])?;
        let scales = module.get(".scales")?;
        let Settings { bits, group, mode } = settings;
        let shape = shape(&codes, &scales, bits, group)?;
        let piece = match mode {
            Mode::Affine => affine(module, codes, scales, shape, &settings)?,
            _ => floats(module, codes, scales, shape, &settings)?,
        };
        Ok(Some(vec![(String::new(), piece)]))
    }
}

/// The shape of the matrix, on which words and scales must agree.
fn shape(codes: &Part<'_>, scales: &Part<'_>, bits: usize, group: usize) -> Result<Shape, Problem> {
    let (words, groups) = (codes.dims(), scales.dims());
    let (Some((&words, rows)), Some((&groups, scale_rows))) = (words.split_last(), groups.split_last())
    else {
        return Err(Problem::expected("matrices", "a scalar"));
    };
    let columns = groups.checked_mul(group).ok_or(Problem::Overflow)?;
    let packed = columns.checked_mul(bits).filter(|bits| bits.is_multiple_of(32)).map(|bits| bits / 32);
    if packed != Some(words) || rows != scale_rows {
        let expected = format!("{words} words and scales that agree on {bits} bits in groups of {group}");
        let found = format!("words {:?}, scales {:?}", codes.dims(), scales.dims());
        return Err(Problem::expected(expected, found));
    }
    let dims: Vec<usize> = rows.iter().copied().chain([columns]).collect();
    Shape::new(&dims).filter(|shape| shape.elements() > 0).ok_or(Problem::Overflow)
}

fn affine<'a>(
    module: &Module<'a>,
    codes: Part<'a>,
    scales: Part<'a>,
    shape: Shape,
    settings: &Settings,
) -> Result<Piece<'a>, Problem> {
    let Settings { bits, group, .. } = *settings;
    let biases = module.get_as(".biases", &[&scales.info.dtype])?;
    biases.check(".biases", scales.dims())?;
    let float = scales.float()?;
    let (size, groups) = (float.bytes(), shape.row_len() / group);
    let row_bytes = shape.row_len() * bits / 8;
    let numbers = move |row: usize, index: usize| {
        let at = (row * groups + index) * size;
        (float.read(&scales.bytes[at..]), float.read(&biases.bytes[at..]))
    };
    let codes = move |row: usize, out: &mut [u8]| {
        let stream = &codes.bytes[row * row_bytes..(row + 1) * row_bytes];
        unpack(words_of(stream), bits, out);
    };
    Groups { shape, bits, group, second: Second::Bias, float, numbers, codes }.piece()
}

fn floats<'a>(
    module: &Module<'a>,
    codes: Part<'a>,
    scales: Part<'a>,
    shape: Shape,
    settings: &Settings,
) -> Result<Piece<'a>, Problem> {
    let name = MODES.iter().find(|(_, mode, ..)| *mode == settings.mode).expect("a mode of the table");
    let &(name, _, group, bits) = name;
    if (settings.group, settings.bits) != (group, bits) {
        let found = format!("{} bits in groups of {}", settings.bits, settings.group);
        return Err(Problem::expected(format!("{name} with {bits} bits in groups of {group}"), found));
    }
    if scales.info.dtype != "U8" {
        return Err(Problem::expected("scales of type U8", &scales.info.dtype));
    }
    if module.find(".biases").is_some() {
        return Err(Problem::expected(format!("{name} without biases"), "`.biases`"));
    }
    float_blocks(module, name, shape, codes.bytes, scales.bytes)
}

/// Four- or eight-bit floats, low nibble first, under scales of a byte, as blocks of `mxfp4`, `nvfp4` or `mxfp8`.
///
/// # Errors
/// If rows do not divide, or a scale is not a positive number.
pub(crate) fn float_blocks<'a>(
    module: &Module<'a>,
    name: &str,
    shape: Shape,
    codes: &'a [u8],
    scales: &'a [u8],
) -> Result<Piece<'a>, Problem> {
    let codec = module.codec(name)?;
    let (len, bytes) = (codec.spec().block_len, codec.spec().block_bytes);
    let (group, bits, top) = match name {
        "nvfp4" => (16, 4, 0x7E),
        "mxfp4" => (32, 4, 0xFE),
        _ => (32, 8, 0xFE),
    };
    let columns = shape.row_len();
    let (row_codes, row_scales, block_scales) = (columns * bits / 8, columns / group, len / group);
    Repack::piece(shape, codec, move |rows, out| {
        for (row, out) in rows.zip(out.chunks_exact_mut(columns / len * bytes)) {
            let codes = codes[row * row_codes..][..row_codes].chunks_exact(len * bits / 8);
            let scales = scales[row * row_scales..][..row_scales].chunks_exact(block_scales);
            for ((block, codes), scales) in out.chunks_exact_mut(bytes).zip(codes).zip(scales) {
                if let Some(scale) = scales.iter().find(|&&scale| scale > top) {
                    return Err(Problem::expected("scales that are positive numbers", format!("{scale:#x}")));
                }
                block[..block_scales].copy_from_slice(scales);
                let out = &mut block[block_scales..];
                match bits {
                    8 => out.copy_from_slice(codes),
                    _ => halve(codes, out, group / 2),
                }
            }
        }
        Ok(())
    })
}

/// Nibbles that follow each other, low one first, as nibbles whose low ones are the first half of each group.
fn halve(codes: &[u8], out: &mut [u8], half: usize) {
    for (codes, out) in codes.chunks_exact(half).zip(out.chunks_exact_mut(half)) {
        let nibble = |i: usize| codes[i / 2] >> (i % 2 * 4) & 15;
        out.iter_mut().enumerate().for_each(|(j, byte)| *byte = nibble(j) | nibble(j + half) << 4);
    }
}
