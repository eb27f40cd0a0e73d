//! Experts of gpt-oss whose numbers are plain: matrices stand as `[experts, in, out]`, and gates and ups take turns.
//!
//! `gate_up_proj` `[E, D, 2F]` becomes `[E, 2F, D]` with all gates before all ups, `down_proj` `[E, F, D]` becomes
//! `[E, D, F]`, `gate_up_proj_bias` `[E, 2F]` all gates before all ups. Source: transformers, `GptOssExperts`.

use crate::{
    Problem,
    repack::{Piece, Repack},
    scheme::{Module, Part},
};
use nibble_tensor::Shape;

/// Whether a plain tensor of a directory stands so.
pub(crate) fn is_turned(name: &str, architecture: &str) -> bool {
    let endings = ["mlp.experts.gate_up_proj", "mlp.experts.gate_up_proj_bias", "mlp.experts.down_proj"];
    architecture == "gpt-oss" && endings.iter().any(|ending| name.ends_with(ending))
}

/// The tensor as all containers have it.
///
/// # Errors
/// If it has another type or shape.
pub(crate) fn piece<'a>(module: &Module<'a>) -> Result<Piece<'a>, Problem> {
    let part: Part<'a> = module.get_as("", &["F32", "F16", "BF16"])?;
    let codec = module.codec(&part.info.dtype.to_ascii_lowercase())?;
    let size = codec.spec().block_bytes;
    let in_turn = module.name.contains("gate_up_proj");
    // `inputs` 1: a bias is the row of outputs itself.
    let (matrices, inputs, outputs) = match *part.dims() {
        [experts, inputs, outputs] => (experts, inputs, outputs),
        [experts, outputs] if module.name.ends_with("_bias") => (experts, 1, outputs),
        _ => return Err(Problem::expected("shape [experts, in, out]", format!("{:?}", part.dims()))),
    };
    if in_turn && !outputs.is_multiple_of(2) {
        return Err(Problem::expected("as many outputs for gates as for ups", outputs));
    }
    let shape = match *part.dims() {
        [_, _] => Shape::new(&[matrices, outputs]),
        _ => Shape::new(&[matrices, outputs, inputs]),
    };
    let shape = shape.ok_or(Problem::Overflow)?;
    let row_len = shape.row_len();
    Repack::piece(shape, codec, move |rows, out| {
        let first = rows.start * row_len;
        for (at, number) in (first..).zip(out.chunks_exact_mut(size)) {
            let (matrix, output, input) = (at / (outputs * inputs), at / inputs % outputs, at % inputs);
            let from = match in_turn {
                true => gates_first(output, outputs),
                false => output,
            };
            let place = ((matrix * inputs + input) * outputs + from) * size;
            number.copy_from_slice(&part.bytes[place..place + size]);
        }
        Ok(())
    })
}

/// Where row `row` of all gates, then all ups, stands among `rows` rows that take turns.
pub(crate) fn gates_first(row: usize, rows: usize) -> usize {
    if row < rows / 2 { 2 * row } else { 2 * (row - rows / 2) + 1 }
}
