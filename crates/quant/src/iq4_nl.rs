//! `iq4_nl`: 32 numbers as four-bit indices into 16 uneven levels under one half-precision scale.
//!
//! Block, 18 bytes, little-endian: `d: f16` at 0, `qs: [u8; 16]` at 2. Number j < 16 is in the low nibble of `qs[j]`,
//! number j + 16 in its high nibble; each is `d * LEVELS[q]`. Source: GGUF specification, tensor type 20.

use crate::fields::{f16_at, half_split, put_f16, put_half_split};
use crate::search::{TINY, farthest, inverse};
use crate::{Codec, Encode, Group, Kind, Spec, Unpacked, decode_unpacked};

/// The levels, also of `iq4_xs`: dense around 0, where most weights are.
pub const LEVELS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// The codec.
pub struct Iq4Nl;

impl Codec for Iq4Nl {
    fn spec(&self) -> &'static Spec {
        &Spec { name: "iq4_nl", block_len: 32, block_bytes: 18, gguf: Some(20) }
    }

    fn kind(&self) -> Kind {
        Kind::Group32
    }

    fn decode(&self, block: &[u8], out: &mut [f32]) {
        decode_unpacked::<32, 1>(self, block, out);
    }

    fn unpack(&self, block: &[u8], out: &mut Unpacked<'_>) {
        out.groups[0] = Group::symmetric(f16_at(block, 0));
        half_split(&block[2..], out.codes, |q| LEVELS[usize::from(q)]);
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for Iq4Nl {
    fn encode_row(&self, row: &[f32], importance: Option<&[f32]>, out: &mut [u8]) {
        for (i, (x, block)) in row.chunks_exact(32).zip(out.chunks_exact_mut(18)).enumerate() {
            let scale = scale(x, &weights(x, importance.map(|v| &v[32 * i..]), variance(x)));
            put_f16(block, 0, scale);
            put_half_split(&indices(x, inverse(scale)), &mut block[2..]);
        }
    }
}

/// Twice the mean square.
pub fn variance(x: &[f32]) -> f32 {
    x.iter().fold(0.0, |sum, x| sum + x * x) * (2.0 / x.len() as f32)
}

/// What each of 32 numbers counts in the search for their scale.
pub fn weights(x: &[f32], importance: Option<&[f32]>, variance: f32) -> [f32; 32] {
    std::array::from_fn(|j| match importance {
        Some(v) => v[j] * (variance + x[j] * x[j]).sqrt(),
        None => x[j] * x[j],
    })
}

/// The scale of 32 numbers with the least error weighted by `w`.
pub fn scale(x: &[f32], w: &[f32; 32]) -> f32 {
    let far = farthest(x);
    if far.abs() < TINY {
        return 0.0;
    }
    let fit = |inverse: f32| {
        let (mut sum_xq, mut sum_qq) = (0.0, 0.0);
        for ((&x, w), index) in x.iter().zip(w).zip(indices(x, inverse)) {
            let q = f32::from(LEVELS[usize::from(index)]);
            sum_xq += w * q * x;
            sum_qq += w * q * q;
        }
        (sum_xq, sum_qq)
    };
    // The farthest number goes to the end of the levels: the first, at -127, or its mirror image.
    let end = f32::from(LEVELS[0]);
    let (sum_xq, sum_qq) = fit(1.0 / (-far / end));
    let mut scale = if sum_qq > 0.0 { sum_xq / sum_qq } else { 0.0 };
    let mut best = scale * sum_xq;
    for s in -7i8..=7 {
        let (sum_xq, sum_qq) = fit((f32::from(s) + end) / far);
        if sum_qq > 0.0 && sum_xq * sum_xq > best * sum_qq {
            scale = sum_xq / sum_qq;
            best = scale * sum_xq;
        }
    }
    scale
}

/// The indices of the levels nearest to 32 numbers times `inverse`; the upper one of two equally near.
pub fn indices(x: &[f32], inverse: f32) -> [u8; 32] {
    std::array::from_fn(|j| {
        let x = x[j] * inverse;
        let above = |pair: &&[i8]| x - f32::from(pair[0]) >= f32::from(pair[1]) - x;
        LEVELS.windows(2).filter(above).count() as u8
    })
}
