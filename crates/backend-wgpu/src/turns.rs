//! Cosines and sines of rotary embedding, computed in 64 bits: 32 are too few for large positions.

use nibble_graph::{Frequencies, Rope};

/// Appends cosine and sine of every pair for a row at `position` of a sequence whose prompt has `prompt_len` tokens.
pub fn append(rope: &Rope, position: u32, prompt_len: u32, words: &mut Vec<u32>) {
    let magnitude = f64::from(rope.magnitude);
    for pair in 0..rope.dims / 2 {
        let (sin, cos) = (f64::from(position) * inverse(rope, pair, position, prompt_len)).sin_cos();
        words.push(((cos * magnitude) as f32).to_bits());
        words.push(((sin * magnitude) as f32).to_bits());
    }
}

fn inverse(rope: &Rope, pair: usize, position: u32, prompt_len: u32) -> f64 {
    match &rope.frequencies {
        Frequencies::Fixed(inverse) => inverse[pair].into(),
        Frequencies::Dynamic { base, factor, original } => {
            let (base, factor, original) = (f64::from(*base), f64::from(*factor), f64::from(*original));
            let (dims, length) = (rope.dims as f64, f64::from(prompt_len).max(f64::from(position) + 1.0));
            let stretch = if length > original { factor * length / original - (factor - 1.0) } else { 1.0 };
            (base * stretch.powf(dims / (dims - 2.0))).powf(-2.0 * pair as f64 / dims)
        }
    }
}
