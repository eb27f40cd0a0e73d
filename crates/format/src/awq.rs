//! `awq`: a directory whose matrices AWQ packed (version `gemm`): eight codes of four bits in a word, across columns.
//!
//! Of a matrix `[out, in]`: `qweight` `I32 [in, out / 8]`, `qzeros` `I32 [in / group, out / 8]`, `scales`
//! `[in / group, out]`. Column k of the eight in a word is its nibble `NIBBLE[k]`. `w = scale * (q - zero)`.
//! Source: casper-hansen/AutoAWQ, `awq/utils/packing_utils.py`, `awq/modules/linear/gemm.py`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory,
    scheme::{Groups, Module, Pieces, Scheme, count},
};
use nibble_quant::{Registry, grouped::Second};
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// Which nibble of a word a column is.
const NIBBLE: [usize; 8] = [0, 4, 1, 5, 2, 6, 3, 7];

/// The container.
pub(crate) struct Awq;

impl Container for Awq {
    fn name(&self) -> &'static str {
        "awq"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `awq`, version `gemm`: 4 bits"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| method == "awq")
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let settings = settings(&config.root["quantization_config"]);
            settings.map_err(|p| p.at("config.json: key `quantization_config`"))
        })
    }
}

/// Inputs under one scale; all of them if `None`.
struct Packed(Option<usize>);

fn settings(config: &Json) -> Result<Box<dyn Scheme>, Problem> {
    let refuse = |what: String| Err(Problem::Unsupported(what));
    match config.get("version").map_or(Some("gemm"), Json::as_str) {
        Some(version) if version.eq_ignore_ascii_case("gemm") => {}
        other => return refuse(format!("AWQ of version {other:?} is not supported, only `gemm`")),
    }
    let bits = count(config, "bits", count(config, "w_bit", 4)?)?;
    if bits != 4 {
        return refuse(format!("AWQ with {bits} bits is not supported, only 4"));
    }
    let group = ["group_size", "q_group_size"].into_iter().find(|key| config.get(*key).is_some());
    Ok(Box::new(Packed(match group {
        Some(key) if config[key].as_i64() == Some(-1) => None,
        Some(key) => Some(count(config, key, 128)?),
        None => Some(128),
    })))
}

impl Scheme for Packed {
    fn marks(&self) -> &'static [&'static str] {
        &[".qweight"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".qzeros", ".scales"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let words = module.get_as(".qweight", &["I32", "U32"])?;
        let [inputs, columns] = words.matrix("[in, out / 8]")?;
        let outputs = columns.checked_mul(8).ok_or(Problem::Overflow)?;
        let group = self.0.unwrap_or(inputs);
        if !inputs.is_multiple_of(group) {
            return Err(Problem::expected(format!("a whole number of groups of {group}"), inputs));
        }
        let (scales, zeros) = (module.get(".scales")?, module.get_as(".qzeros", &["I32", "U32"])?);
        scales.check(".scales", &[inputs / group, outputs])?;
        zeros.check(".qzeros", &[inputs / group, columns])?;
        let (float, size) = (scales.float()?, scales.float()?.bytes());
        let nibble = move |words: &[u8], row: usize, output: usize| {
            let nibble = NIBBLE[output % 8];
            words[(row * columns + output / 8) * 4 + nibble / 2] >> (nibble % 2 * 4) & 15
        };
        let numbers = move |output: usize, group: usize| {
            let scale = float.read(&scales.bytes[(group * outputs + output) * size..]);
            (scale, f32::from(nibble(zeros.bytes, group, output)))
        };
        let codes = move |output: usize, out: &mut [u8]| {
            out.iter_mut().enumerate().for_each(|(input, code)| *code = nibble(words.bytes, input, output));
        };
        let shape = Shape::new(&[outputs, inputs]).ok_or(Problem::Overflow)?;
        let weight = Groups { shape, bits: 4, group, second: Second::Zero, float, numbers, codes }.piece()?;
        Ok(Some(vec![(String::new(), weight)]))
    }
}
