//! Four-bit floats (E2M1): what `mxfp4` and `nvfp4` share. Source: OCP Microscaling Formats 1.0.

/// Twice the value of each code: integers. Code 8, minus zero, is plain zero here, as in the reference.
pub const DOUBLED: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// The first code whose doubled value times `scale` is nearest to `x`.
pub fn nearest(x: f32, scale: f32) -> u8 {
    let distance = |code: u8| (f32::from(DOUBLED[usize::from(code)]) * scale - x).abs();
    (1..16).fold(0, |best, code| if distance(code) < distance(best) { code } else { best })
}
