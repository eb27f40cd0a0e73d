//! `gptq`: a directory whose matrices GPTQ packed: codes in 32-bit words that run down the columns.
//!
//! Of a matrix `[out, in]`: `qweight` `I32 [in * bits / 32, out]`, each column a dense stream, lowest bit first;
//! `qzeros` `I32 [groups, out * bits / 32]`, dense along a row; `scales` `[groups, out]`; perhaps `g_idx` `I32 [in]`, the
//! group of each input. `w = scale * (q - zero)`; files of the first version store the zero minus one.
//! With `g_idx` the columns are sorted by group, and the matrix brings their order.
//! Source: ModelCloud/GPTQModel, `nn_modules/qlinear`; AutoGPTQ.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    repack::{bits_at, unpack, words_down},
    scheme::{Groups, Module, Pieces, Scheme, count},
};
use nibble_quant::{Registry, grouped::Second};
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The container.
pub(crate) struct Gptq;

impl Container for Gptq {
    fn name(&self) -> &'static str {
        "gptq"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `gptq`, or `quantize_config.json`: 2, 3, 4 or 8 bits, with or without `desc_act`"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        let old = path.join("quantize_config.json").is_file();
        match directory::peek(path, head) {
            None => false,
            Some(root) => match root.get("quantization_config") {
                None | Some(Json::Null) => old,
                Some(config) => config.get("quant_method").and_then(Json::as_str) == Some("gptq"),
            },
        }
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| match config.root.get("quantization_config") {
            Some(own @ Json::Object(_)) => {
                settings(own).map_err(|p| p.at("config.json: key `quantization_config`"))
            }
            _ => {
                let old = directory::json(&path.join("quantize_config.json"))?;
                settings(&old).map_err(|p| p.at("quantize_config.json"))
            }
        })
    }
}

struct Packed {
    bits: usize,
    /// Inputs under one scale; all of them if `None`.
    group: Option<usize>,
    /// What is added to a stored zero.
    zero: u8,
    /// Whether inputs are in an order of their own, so that `g_idx` must be there.
    ordered: bool,
}

fn settings(config: &Json) -> Result<Box<dyn Scheme>, Problem> {
    let bits = count(config, "bits", 4)?;
    if ![2, 3, 4, 8].contains(&bits) {
        return Err(Problem::Unsupported(format!(
            "GPTQ with {bits} bits is not supported, only 2, 3, 4 and 8"
        )));
    }
    if config.get("dynamic").is_some_and(|dynamic| !dynamic.is_null()) {
        return Err(Problem::Unsupported(
            "GPTQ with `dynamic` settings for single modules is not supported".into(),
        ));
    }
    let zero = match config.get("checkpoint_format").map_or(Some("gptq"), Json::as_str) {
        Some("gptq") => 1,
        Some("gptq_v2") => 0,
        other => {
            return Err(Problem::Unsupported(format!("GPTQ with checkpoint_format {other:?} is not known")));
        }
    };
    let group = match config.get("group_size").and_then(Json::as_i64) {
        Some(-1) => None,
        _ => Some(count(config, "group_size", 128)?),
    };
    let ordered = group.is_some() && config.get("desc_act").and_then(Json::as_bool) == Some(true);
    Ok(Box::new(Packed { bits, group, zero, ordered }))
}

impl Scheme for Packed {
    fn marks(&self) -> &'static [&'static str] {
        &[".qweight"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".qzeros", ".scales", ".g_idx"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let bits = self.bits;
        let words = module.get_as(".qweight", &["I32", "U32"])?;
        let [word_rows, outputs] = words.matrix("[in * bits / 32, out]")?;
        let inputs = word_rows.checked_mul(32).ok_or(Problem::Overflow)? / bits;
        let group = self.group.unwrap_or(inputs);
        let scales = module.get(".scales")?;
        let groups = inputs.div_ceil(group);
        scales.check(".scales", &[groups, outputs])?;
        let zeros = module.get_as(".qzeros", &["I32", "U32"])?;
        zeros.check(".qzeros", &[groups, (outputs * bits).div_ceil(32)])?;
        if !inputs.is_multiple_of(group) {
            return Err(Problem::expected(format!("a whole number of groups of {group}"), inputs));
        }
        let order = match module.find(".g_idx") {
            Some(part) => {
                if part.info.dtype != "I32" {
                    return Err(Problem::expected("`.g_idx` of type I32", &part.info.dtype));
                }
                part.check(".g_idx", &[inputs])?;
                order(&part.words().collect::<Vec<_>>(), group)?
            }
            None if self.ordered => {
                return Err(Problem::Missing(format!("tensor `{}.g_idx` beside it", module.name)));
            }
            None => None,
        };
        let mut pieces = order_piece(module, order.as_deref())?;
        let (float, size, zero_bytes) = (scales.float()?, scales.float()?.bytes(), zeros.dims()[1] * 4);
        let numbers = move |output: usize, group: usize| {
            let scale = float.read(&scales.bytes[(group * outputs + output) * size..]);
            let stored = bits_at(&zeros.bytes[group * zero_bytes..][..zero_bytes], output * bits, bits);
            (scale, f32::from(stored) + f32::from(self.zero))
        };
        let codes = move |output: usize, out: &mut [u8]| {
            unpack(words_down(words.bytes, outputs, output), bits, out);
            reorder(order.as_deref(), out);
        };
        let shape = Shape::new(&[outputs, inputs]).ok_or(Problem::Overflow)?;
        let weight = Groups { shape, bits, group, second: Second::Zero, float, numbers, codes }.piece()?;
        pieces.push((String::new(), weight));
        Ok(Some(pieces))
    }
}

/// The tensor beside the matrix that says from where its columns come, if they do not lie in order.
pub(crate) fn order_piece<'a>(module: &Module<'a>, order: Option<&[usize]>) -> Result<Pieces<'a>, Problem> {
    let Some(order) = order else { return Ok(vec![]) };
    let numbers: Vec<f32> = order.iter().map(|&i| i as f32).collect();
    Ok(vec![(".order".to_owned(), module.floats(&numbers)?)])
}

/// Puts the stored codes of a row in an order, if there is one.
pub(crate) fn reorder(order: Option<&[usize]>, codes: &mut [u8]) {
    let Some(order) = order else { return };
    let stored = codes.to_vec();
    codes.iter_mut().zip(order).for_each(|(code, &input)| *code = stored[input]);
}

/// The inputs sorted by their groups, all of which must have `group` of them; `None` if they are sorted already, as they
/// are taken to be where all are said to be in group 0.
///
/// # Errors
/// If groups are of different sizes.
pub(crate) fn order(group_of: &[i32], group: usize) -> Result<Option<Vec<usize>>, Problem> {
    let sorted = |(i, &g): (usize, &i32)| g == (i / group) as i32;
    if group_of.iter().enumerate().all(sorted) || group_of.iter().all(|&g| g == 0) {
        return Ok(None);
    }
    let mut order: Vec<usize> = (0..group_of.len()).collect();
    order.sort_by_key(|&i| group_of[i]);
    let wrong = order.iter().enumerate().find(|&(at, &i)| group_of[i] != (at / group) as i32);
    match wrong {
        None => Ok(Some(order)),
        Some((at, &i)) => {
            let expected =
                format!("groups of {group} inputs each: input number {at} of them in group {}", at / group);
            Err(Problem::expected(expected, format!("group {}", group_of[i])))
        }
    }
}
