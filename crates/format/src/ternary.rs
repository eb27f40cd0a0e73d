//! Ternary matrices whose codes lie in an order that no kernel reads: they become blocks of a ternary codec with scale 1.

use crate::{Problem, repack::Repack};
use nibble_quant::{Codec, Registry};
use nibble_tensor::Shape;

/// Codecs that hold -1, 0 and 1 without loss, best first. The first whose blocks fit a row is taken.
const CODECS: &[&str] = &["tq2_0", "q2_0", "f16", "bf16", "f32"];

/// A matrix of which `fill` writes a row.
///
/// # Errors
/// If no codec of the registry takes its rows.
pub(crate) fn repack<'a>(
    codecs: &Registry,
    shape: Shape,
    fill: impl Fn(usize, &mut [f32]) -> Result<(), Problem> + Sync + 'a,
) -> Result<Repack<'a>, Problem> {
    let row_len = shape.row_len();
    let fits = |codec: &&'static dyn Codec| row_len.is_multiple_of(codec.spec().block_len);
    let codec = CODECS.iter().filter_map(|name| codecs.by_name(name)).find(fits);
    let codec = codec.ok_or_else(|| Problem::Missing("a codec for ternary weights".into()))?;
    let no_encoder = || Problem::Encoding(nibble_quant::Problem::NoEncoder(codec.spec().name));
    let encode = codec.encoder().ok_or_else(no_encoder)?;
    let row_bytes = row_len / codec.spec().block_len * codec.spec().block_bytes;
    Repack::new(shape, codec, move |rows, out| {
        let mut numbers = vec![0.0; row_len];
        for (row, out) in rows.zip(out.chunks_exact_mut(row_bytes)) {
            fill(row, &mut numbers)?;
            encode.encode_row(&numbers, None, out);
        }
        Ok(())
    })
}
