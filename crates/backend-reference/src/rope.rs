//! Rotary position embedding.

use nibble_graph::{Frequencies, Rope, RopeLayout};

/// Radians that each pair turns from one position to the next, for a row at `position` of a sequence whose prompt
/// has `prompt_len` tokens; see [`Frequencies`].
pub fn inverse_frequencies(rope: &Rope, position: u32, prompt_len: u32) -> Vec<f64> {
    match &rope.frequencies {
        Frequencies::Fixed(inverse) => inverse.iter().map(|&f| f.into()).collect(),
        Frequencies::Dynamic { base, factor, original } => {
            let (base, factor, original) = (f64::from(*base), f64::from(*factor), f64::from(*original));
            let (dims, length) = (rope.dims as f64, f64::from(prompt_len).max(f64::from(position) + 1.0));
            let stretch = if length > original { factor * length / original - (factor - 1.0) } else { 1.0 };
            let base = base * stretch.powf(dims / (dims - 2.0));
            (0..rope.dims / 2).map(|i| base.powf(-2.0 * i as f64 / dims)).collect()
        }
    }
}

/// Turns the pairs of every head in one row.
pub fn rope(x: &[f32], rope: &Rope, position: u32, prompt_len: u32, y: &mut [f32]) {
    y.copy_from_slice(x);
    let half = rope.dims / 2;
    for (i, inverse) in inverse_frequencies(rope, position, prompt_len).into_iter().enumerate() {
        let (sin, cos) = (f64::from(position) * inverse).sin_cos();
        let (sin, cos) = (sin * f64::from(rope.magnitude), cos * f64::from(rope.magnitude));
        let (first, second) = match rope.layout {
            RopeLayout::Split => (i, i + half),
            RopeLayout::Interleaved => (2 * i, 2 * i + 1),
        };
        for head in y.chunks_exact_mut(rope.head_dim) {
            let (a, b) = (f64::from(head[first]), f64::from(head[second]));
            head[first] = (a * cos - b * sin) as f32;
            head[second] = (b * cos + a * sin) as f32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quarter(layout: RopeLayout) -> Rope {
        let quarter_turn = std::f32::consts::FRAC_PI_2;
        let frequencies = Frequencies::Fixed([quarter_turn, 0.0].into());
        Rope { head_dim: 5, dims: 4, layout, frequencies, magnitude: 2.0 }
    }

    #[test]
    fn rope_turns_the_pairs_of_its_layout_and_leaves_the_rest() {
        let x = [1.0, 2.0, 3.0, 4.0, 5.0];
        let mut y = [0.0; 5];
        rope(&x, &quarter(RopeLayout::Split), 1, 1, &mut y);
        let expected = [-6.0, 4.0, 2.0, 8.0, 5.0];
        assert!(y.iter().zip(expected).all(|(y, e)| (y - e).abs() < 1e-6), "{y:?}");
        rope(&x, &quarter(RopeLayout::Interleaved), 1, 1, &mut y);
        let expected = [-4.0, 2.0, 6.0, 8.0, 5.0];
        assert!(y.iter().zip(expected).all(|(y, e)| (y - e).abs() < 1e-6), "{y:?}");
    }

    #[test]
    fn dynamic_frequencies_follow_the_longer_of_prompt_and_position() {
        let frequencies = Frequencies::Dynamic { base: 10_000.0, factor: 2.0, original: 100 };
        let r = Rope { head_dim: 8, dims: 8, layout: RopeLayout::Split, frequencies, magnitude: 1.0 };
        let plain = inverse_frequencies(&r, 99, 0);
        assert!((plain[1] - 0.1).abs() < 1e-12, "unscaled up to the original length");
        assert_eq!(inverse_frequencies(&r, 0, 200), inverse_frequencies(&r, 199, 7));
        let base = 10_000.0 * 3f64.powf(8.0 / 6.0);
        assert!((inverse_frequencies(&r, 0, 200)[1] - base.powf(-0.25)).abs() < 1e-12);
    }
}
