//! One row of a table for each token.

use nibble_quant::Encoded;

/// Row `token` of `table` (`[V, D]`) for each token; `y` is `[T, D]`.
pub fn embed(tokens: &[u32], table: &Encoded, y: &mut [f32]) {
    for (&token, y) in tokens.iter().zip(y.chunks_exact_mut(table.shape().row_len())) {
        table.decode_row(token as usize, y);
    }
}
