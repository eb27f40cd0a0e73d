//! `compressed-tensors`: a directory of integers or small floats, as llm-compressor writes them.
//!
//! | format | tensors of a matrix `[out, in]` |
//! |---|---|
//! | `pack-quantized` | `weight_packed` `I32 [out, words]`, `weight_scale` `[out, groups]`, `weight_zero_point` `I32`, packed across outputs, if it is asymmetric; perhaps `weight_g_idx` `I32 [in]` |
//! | `int-quantized`, `naive-quantized` | `weight` `I8`, `weight_scale` |
//! | `float-quantized` | `weight` `F8_E4M3`, `weight_scale` |
//! | `nvfp4-pack-quantized` | `weight_packed` `U8 [out, in / 2]`, `weight_scale` `F8_E4M3`, `weight_global_scale`, which divides |
//! | `mxfp4-pack-quantized` | `weight_packed` `U8 [out, in / 2]`, `weight_scale` `U8` |
//!
//! A packed integer is its value plus `2^(bits - 1)`, lowest bit first, in a dense stream; older files leave the top bits
//! of a word unused where `bits` does not divide 32, which the number of words tells.
//! Source: vllm-project/compressed-tensors, `compressors/pack_quantized`, `compressors/nvfp4`.

use crate::{
    Checkpoint, Container, Error, OpenOptions, Problem, directory, fp8, gptq, mlx, modelopt,
    repack::{Piece, bits_down, unpack, words_of},
    scheme::{Groups, Module, Part, Pieces, Scheme, count},
};
use nibble_quant::{Encoded, Registry, grouped::Second};
use nibble_tensor::Shape;
use serde_json::Value as Json;
use std::path::Path;

/// The formats that are read.
const FORMATS: &[&str] = &[
    "pack-quantized",
    "int-quantized",
    "naive-quantized",
    "float-quantized",
    "nvfp4-pack-quantized",
    "mxfp4-pack-quantized",
    "mixed-precision",
];

/// The container.
pub(crate) struct CompressedTensors;

impl Container for CompressedTensors {
    fn name(&self) -> &'static str {
        "compressed-tensors"
    }

    fn about(&self) -> &'static str {
        "`quant_method` `compressed-tensors`: integers of 1 to 8 bits, FP8, NVFP4, MXFP4"
    }

    fn recognizes(&self, path: &Path, head: Option<&[u8]>) -> bool {
        directory::method(path, head).is_some_and(|method| method == "compressed-tensors")
    }

    fn open(&self, path: &Path, codecs: &Registry, options: &OpenOptions) -> Result<Checkpoint, Error> {
        directory::open(self, path, codecs, options, |config| {
            let settings = settings(&config.root["quantization_config"]);
            settings.map_err(|p| p.at("config.json: key `quantization_config`"))
        })
    }
}

/// A group of modules.
struct Group {
    /// The names that they go by.
    targets: Vec<String>,
    bits: usize,
    /// Whether integers have no zero points.
    symmetric: bool,
    /// Whether inputs are in an order of their own.
    ordered: bool,
}

/// All groups.
struct Settings(Vec<Group>);

fn settings(config: &Json) -> Result<Box<dyn Scheme>, Problem> {
    let refuse = |what: String| Err(Problem::Unsupported(what));
    match config.get("format").and_then(Json::as_str) {
        Some(format) if FORMATS.contains(&format) => {}
        other => return refuse(format!("compressed-tensors of format {other:?} is not supported")),
    }
    if config
        .pointer("/sparsity_config/format")
        .and_then(Json::as_str)
        .is_some_and(|format| format != "dense")
    {
        return refuse("compressed-tensors with sparse matrices is not supported".into());
    }
    if config
        .pointer("/transform_config/config_groups")
        .and_then(Json::as_object)
        .is_some_and(|t| !t.is_empty())
    {
        return refuse("compressed-tensors with transformed activations is not supported".into());
    }
    let Some(groups) = config.get("config_groups").and_then(Json::as_object) else {
        return Err(Problem::Missing("`config_groups`".into()));
    };
    let mut all = Vec::new();
    for (name, group) in groups {
        let targets = group.get("targets").and_then(Json::as_array).into_iter().flatten();
        let targets: Vec<String> = targets.filter_map(Json::as_str).map(str::to_owned).collect();
        let bits = count(&group["weights"], "num_bits", 8)?;
        if !(1..=8).contains(&bits) {
            return refuse(format!("`{name}` with {bits} bits is not supported"));
        }
        let weights = &group["weights"];
        all.push(Group {
            targets,
            bits,
            symmetric: weights.get("symmetric").and_then(Json::as_bool) != Some(false),
            ordered: weights.get("actorder").and_then(Json::as_str) == Some("group"),
        });
    }
    Ok(Box::new(Settings(all)))
}

impl Settings {
    /// The group of a module: the one that names it, else the one of all, else the only one.
    fn group(&self, module: &str) -> Result<&Group, Problem> {
        let named = |target: &String| module.ends_with(target.as_str());
        let own = self.0.iter().find(|group| group.targets.iter().any(named));
        let all = |group: &&Group| group.targets.iter().any(|target| target == "Linear");
        let found = own.or_else(|| self.0.iter().find(all)).or(match &self.0[..] {
            [one] => Some(one),
            _ => None,
        });
        found.ok_or_else(|| {
            Problem::Unsupported("which of the `config_groups` it belongs to is not clear".into())
        })
    }
}

impl Scheme for Settings {
    fn marks(&self) -> &'static [&'static str] {
        &[".weight_packed", ".weight_scale"]
    }

    fn companions(&self) -> &'static [&'static str] {
        &[".weight", ".weight_zero_point", ".weight_shape", ".weight_g_idx", ".weight_global_scale"]
    }

    fn pieces<'a>(&'a self, module: &Module<'a>) -> Result<Option<Pieces<'a>>, Problem> {
        let scale = module.get(".weight_scale")?;
        let Some(packed) = module.find(".weight_packed") else {
            let weight = module.get_as(".weight", &["F8_E4M3", "I8"])?;
            return match weight.info.dtype.as_str() {
                "I8" => bytes(module, weight, scale).map(Some),
                _ => match *scale.dims() {
                    [rows, columns] if columns > 1 => {
                        floats(module, weight, scale, [rows, columns]).map(Some)
                    }
                    _ => fp8::rows(module, weight, scale).map(Some),
                },
            };
        };
        if module.find(".weight").is_some() {
            return Err(Problem::expected("either `.weight` or `.weight_packed`", "both"));
        }
        match (packed.info.dtype.as_str(), module.find(".weight_global_scale")) {
            ("I32", None) => integers(module, packed, scale, self.group(module.name)?).map(Some),
            ("U8", Some(divisor)) => {
                let factors: Vec<f32> = divisor.numbers()?.into_iter().map(f32::recip).collect();
                modelopt::nvfp4(module, ".weight_packed", &factors).map(Some)
            }
            ("U8", None) => {
                let [outputs, pairs] = packed.matrix("[out, in / 2]")?;
                let scales = module.get_as(".weight_scale", &["U8", "F8_E8M0"])?;
                scales.check(".weight_scale", &[outputs, pairs / 16])?;
                let shape = Shape::new(&[outputs, 2 * pairs]).ok_or(Problem::Overflow)?;
                let weight = mlx::float_blocks(module, "mxfp4", shape, packed.bytes, scales.bytes)?;
                Ok(Some(vec![(String::new(), weight)]))
            }
            (dtype, _) => Err(Problem::expected("`.weight_packed` of type I32 or U8", dtype)),
        }
    }
}

/// Eight-bit floats under scales of blocks.
fn floats<'a>(
    module: &Module<'a>,
    weight: Part<'a>,
    scale: Part<'a>,
    [rows, columns]: [usize; 2],
) -> Result<Pieces<'a>, Problem> {
    let [outputs, inputs] = weight.matrix("[out, in]")?;
    let block = [outputs.div_ceil(rows.max(1)), inputs.div_ceil(columns)].map(|n| n.next_power_of_two());
    let weight = fp8::blocks(module, weight, ".weight_scale", scale, block)?;
    Ok(vec![(String::new(), weight)])
}

/// Signed bytes: they stay where they are if a row has one scale.
fn bytes<'a>(module: &Module<'a>, weight: Part<'a>, scale: Part<'a>) -> Result<Pieces<'a>, Problem> {
    let [outputs, inputs] = weight.matrix("[out, in]")?;
    if module.find(".weight_zero_point").is_some() {
        return Err(Problem::Unsupported("bytes with zero points are not supported".into()));
    }
    let shape = Shape::from([outputs, inputs]);
    if let [rows, groups] = *scale.dims()
        && groups > 1
        && rows == outputs
        && inputs.is_multiple_of(groups)
    {
        let (float, size) = (scale.float()?, scale.float()?.bytes());
        let numbers = move |row: usize, group: usize| {
            (float.read(&scale.bytes[(row * groups + group) * size..]), 128.0)
        };
        let codes = move |row: usize, out: &mut [u8]| {
            let stored = &weight.bytes[row * inputs..];
            out.iter_mut().zip(stored).for_each(|(out, &code)| *out = code ^ 0x80);
        };
        let group = inputs / groups;
        let weight = Groups { shape, bits: 8, group, second: Second::Zero, float, numbers, codes }.piece()?;
        return Ok(vec![(String::new(), weight)]);
    }
    let matrix = Encoded::new(module.name, shape, module.codec("i8")?, weight.mapped());
    let matrix = Piece::InPlace(matrix.map_err(|e| Problem::Encoding(e.problem))?);
    Ok(vec![(String::new(), matrix), (".scale".into(), fp8::row_scales(module, scale, outputs)?)])
}

/// Integers in words.
fn integers<'a>(
    module: &Module<'a>,
    packed: Part<'a>,
    scale: Part<'a>,
    settings: &Group,
) -> Result<Pieces<'a>, Problem> {
    let bits = settings.bits;
    for (ending, needed) in [(".weight_zero_point", !settings.symmetric), (".weight_g_idx", settings.ordered)]
    {
        if needed {
            module.get(ending)?;
        }
    }
    let [outputs, words] = packed.matrix("[out, words]")?;
    let shape = module.get_as(".weight_shape", &["I64", "I32"])?;
    shape.check(".weight_shape", &[2])?;
    let dims: Vec<u64> = match shape.info.dtype.as_str() {
        "I64" => shape.bytes.as_chunks::<8>().0.iter().map(|n| u64::from_le_bytes(*n)).collect(),
        _ => shape.words().map(|n| n as u64).collect(),
    };
    let &[rows, inputs] = &dims[..] else {
        return Err(Problem::expected("two numbers in `.weight_shape`", dims.len()));
    };
    let inputs = usize::try_from(inputs).ok().filter(|&n| n > 0 && n <= words.saturating_mul(32));
    let (true, Some(inputs)) = (rows == outputs as u64, inputs) else {
        return Err(Problem::expected(
            format!("a `.weight_shape` that fits [{outputs}, {words}] words"),
            format!("{dims:?}"),
        ));
    };
    // Codes in a word of older files; newer ones have no such borders.
    let in_word = match words {
        _ if words == (inputs * bits).div_ceil(32) => None,
        _ if words == inputs.div_ceil(32 / bits) => Some(32 / bits),
        _ => {
            let expected = format!("words for {inputs} numbers of {bits} bits in `.weight_packed`");
            return Err(Problem::expected(expected, format!("{words} in a row")));
        }
    };
    let groups = match *scale.dims() {
        [rows, groups] if rows == outputs && groups > 0 && inputs.is_multiple_of(groups) => groups,
        _ => {
            let expected = format!("`.weight_scale` of shape [{outputs}, groups]");
            return Err(Problem::expected(expected, format!("{:?}", scale.dims())));
        }
    };
    let group = inputs / groups;
    let zeros = module.find(".weight_zero_point");
    if let Some(zeros) = zeros {
        zeros.check(".weight_zero_point", &[zero_rows(outputs, bits, zeros.dims()), groups])?;
    }
    let zero_in_word =
        zeros.is_some_and(|zeros| zeros.dims()[0] != (outputs * bits).div_ceil(32)).then_some(32 / bits);
    let order = match module.find(".weight_g_idx") {
        Some(part) => {
            part.check(".weight_g_idx", &[inputs])?;
            gptq::order(&part.words().collect::<Vec<_>>(), group)?
        }
        None => None,
    };
    let mut pieces = gptq::order_piece(module, order.as_deref())?;
    let (float, size) = (scale.float()?, scale.float()?.bytes());
    let numbers = move |row: usize, index: usize| {
        let at = zero_in_word.map_or(row * bits, |n| row / n * 32 + row % n * bits);
        let middle = 1u8 << (bits - 1);
        let zero = zeros.map_or(middle, |zeros| bits_down(zeros.bytes, groups, index, at, bits));
        (float.read(&scale.bytes[(row * groups + index) * size..]), f32::from(zero))
    };
    let codes = move |row: usize, out: &mut [u8]| {
        let stream = &packed.bytes[row * words * 4..(row + 1) * words * 4];
        match in_word {
            None => unpack(words_of(stream), bits, out),
            // What is left of a word means nothing.
            Some(n) => words_of(stream)
                .zip(out.chunks_mut(n))
                .for_each(|(word, out)| unpack(std::iter::once(word), bits, out)),
        }
        gptq::reorder(order.as_deref(), out);
    };
    let shape = Shape::new(&[outputs, inputs]).ok_or(Problem::Overflow)?;
    let weight = Groups { shape, bits, group, second: Second::Zero, float, numbers, codes }.piece()?;
    pieces.push((String::new(), weight));
    Ok(pieces)
}

/// Rows of words that zeros of `outputs` outputs take, dense or as older files have them.
fn zero_rows(outputs: usize, bits: usize, dims: &[usize]) -> usize {
    let (dense, older) = ((outputs * bits).div_ceil(32), outputs.div_ceil(32 / bits));
    if dims.first() == Some(&older) { older } else { dense }
}
