//! `rope`: each pair of a head turned by an angle that grows with the position.

use nibble_graph::{Frequencies, Rope, RopeLayout};

/// Fills `table` (`dims/2` cosines, then `dims/2` sines, both times the magnitude) for one row.
pub fn angles(rope: &Rope, position: u32, prompt_len: u32, table: &mut [f32]) {
    let half = rope.dims / 2;
    let (cos, sin) = table.split_at_mut(half);
    let mut set = |i: usize, inverse: f64| {
        let (s, c) = (f64::from(position) * inverse).sin_cos();
        let magnitude = f64::from(rope.magnitude);
        (cos[i], sin[i]) = ((c * magnitude) as f32, (s * magnitude) as f32);
    };
    match &rope.frequencies {
        Frequencies::Fixed(inverse) => (0..half).for_each(|i| set(i, f64::from(inverse[i]))),
        Frequencies::Dynamic { base, factor, original } => {
            let base = dynamic_base(*base, *factor, *original, prompt_len.max(position + 1), rope.dims);
            (0..half).for_each(|i| set(i, base.powf(-2.0 * i as f64 / rope.dims as f64)));
        }
    }
}

/// The base at a length: see [`Frequencies::Dynamic`].
fn dynamic_base(base: f32, factor: f32, original: u32, len: u32, dims: usize) -> f64 {
    let (base, factor) = (f64::from(base), f64::from(factor));
    if len <= original || dims <= 2 {
        return base;
    }
    let stretch = factor * f64::from(len) / f64::from(original) - (factor - 1.0);
    base * stretch.powf(dims as f64 / (dims as f64 - 2.0))
}

/// Turns every head of a row; `table` as [`angles`] fills it.
pub fn rope(rope: &Rope, table: &[f32], row: &mut [f32]) {
    let half = rope.dims / 2;
    let (cos, sin) = table.split_at(half);
    for head in row.chunks_exact_mut(rope.head_dim) {
        match rope.layout {
            RopeLayout::Split => {
                let (a, b) = head[..rope.dims].split_at_mut(half);
                for (((a, b), c), s) in a.iter_mut().zip(b).zip(cos).zip(sin) {
                    (*a, *b) = (*a * c - *b * s, *b * c + *a * s);
                }
            }
            RopeLayout::Interleaved => {
                for ((pair, c), s) in head[..rope.dims].as_chunks_mut::<2>().0.iter_mut().zip(cos).zip(sin) {
                    *pair = [pair[0] * c - pair[1] * s, pair[1] * c + pair[0] * s];
                }
            }
        }
    }
}
