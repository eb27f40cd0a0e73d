//! What `q4_k` and `q5_k` share: eight sub-blocks of 32 under six-bit scales and minimums.
//!
//! Header, 16 bytes: `d: f16` at 0, `dmin: f16` at 2, `s: [u8; 12]` at 4. Scales and minimums 0 to 3 are the low six
//! bits of `s[j]` and `s[j + 4]`; of 4 to 7, the low four bits are the nibbles of `s[j + 4]`, the high two the top
//! bits of `s[j - 4]` and `s[j]`. Number i of sub-block b is `(d * scale[b]) * q[i] - dmin * min[b]`.
//! Source: GGUF specification, tensor types 12 and 13.

use crate::Group;
use crate::fields::{bytes, f16_at, put_f16};
use crate::search::{self, Steps, nearest_up_to};

/// The largest six-bit scale.
const TOP_SCALE: u8 = 63;

/// The eight groups of a block.
pub fn groups(block: &[u8]) -> [Group; 8] {
    let (d, dmin) = (f16_at(block, 0), f16_at(block, 2));
    let (scales, mins) = unpack(bytes(block, 4));
    std::array::from_fn(|b| Group { scale: d * f32::from(scales[b]), offset: -(dmin * f32::from(mins[b])) })
}

/// Eight scales and eight minimums.
fn unpack(s: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        scales[j] = s[j] & 63;
        mins[j] = s[j + 4] & 63;
        scales[j + 4] = s[j + 8] & 15 | s[j] >> 6 << 4;
        mins[j + 4] = s[j + 8] >> 4 | s[j + 4] >> 6 << 4;
    }
    (scales, mins)
}

/// The reverse of [`unpack`].
fn pack(scales: &[u8; 8], mins: &[u8; 8]) -> [u8; 12] {
    let mut s = [0; 12];
    for j in 0..4 {
        s[j] = scales[j] | scales[j + 4] >> 4 << 6;
        s[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        s[j + 8] = scales[j + 4] & 15 | (mins[j + 4] & 15) << 4;
    }
    s
}

/// Rounds 256 numbers: writes the header of `block` and returns the codes, `0..=top`.
pub fn quantize(
    x: &[f32],
    importance: Option<&[f32]>,
    top: u8,
    steps: &Steps,
    block: &mut [u8],
) -> [u8; 256] {
    let steps = if importance.is_some() { &search::WEIGHTED } else { steps };
    let around = 2.0 * search::mean_square(x);
    let mut codes = [0; 256];
    let (mut scales, mut mins, mut weights) = ([0.0; 8], [0.0; 8], [0.0; 8]);
    for b in 0..8 {
        let at = 32 * b..32 * b + 32;
        let x = &x[at.clone()];
        let w: [f32; 32] = match importance {
            Some(v) => search::column_weights(x, &v[32 * b..], around),
            None => {
                let typical = (x.iter().fold(0.0, |sum, x| sum + x * x) / 32.0).sqrt();
                std::array::from_fn(|l| typical + x[l].abs())
            }
        };
        weights[b] = w.iter().fold(0.0, |sum, w| sum + w);
        (scales[b], mins[b]) = search::scale_and_min(x, &w, top, steps, &mut codes[at]);
    }

    let (d, scales) = six_bits(&scales, importance.map(|_| &weights));
    let (dmin, mins) = six_bits(&mins, importance.map(|_| &weights));
    let (d, dmin) = (put_f16(block, 0, d), put_f16(block, 2, dmin));
    block[4..16].copy_from_slice(&pack(&scales, &mins));
    for (b, (codes, x)) in codes.chunks_exact_mut(32).zip(x.chunks_exact(32)).enumerate() {
        let (d, m) = (d * f32::from(scales[b]), dmin * f32::from(mins[b]));
        if d != 0.0 {
            for (code, x) in codes.iter_mut().zip(x) {
                *code = nearest_up_to((x + m) / d, top);
            }
        }
    }
    codes
}

/// Eight scales as a common factor and six bits each.
fn six_bits(scales: &[f32; 8], weights: Option<&[f32; 8]>) -> (f32, [u8; 8]) {
    let mut codes = [0; 8];
    if let Some(weights) = weights {
        return (search::positive(scales, weights, TOP_SCALE, &mut codes), codes);
    }
    let max = scales.iter().copied().fold(0.0, f32::max);
    let inverse = if max > 0.0 { f32::from(TOP_SCALE) / max } else { 0.0 };
    (max / f32::from(TOP_SCALE), scales.map(|scale| nearest_up_to(inverse * scale, TOP_SCALE)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pack_is_the_reverse_of_unpack() {
        let s: [u8; 12] = std::array::from_fn(|i| (i * 83 + 41) as u8);
        let (scales, mins) = unpack(&s);
        assert_eq!(pack(&scales, &mins), s);
    }
}
