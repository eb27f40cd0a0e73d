//! Base-3 digits in bytes: what `tq1_0` and `ptq1_0` share.
//!
//! A byte holds five digits 0, 1, 2 for -1, 0, +1 as the fraction `0.t0t1t2t3t4` (base 3) of 256, so digit n is found
//! by multiplying by `3^n`, keeping eight bits, and multiplying by 3. Source: GGUF specification, tensor type 34.

/// Writes `codes.len() / packed.len()` digits of each byte as -1, 0, +1: digit n of byte m is number
/// `packed.len() * n + m`.
pub fn unpack(packed: &[u8], codes: &mut [i8]) {
    let mut shift = 1u8;
    for codes in codes.chunks_exact_mut(packed.len()) {
        for (code, &byte) in codes.iter_mut().zip(packed) {
            let fraction = byte.wrapping_mul(shift);
            *code = ((u16::from(fraction) * 3) >> 8) as i8 - 1;
        }
        shift = shift.wrapping_mul(3);
    }
}

/// The reverse of [`unpack`], from digits 0, 1, 2.
pub fn pack(digits: &[u8], packed: &mut [u8]) {
    let len = packed.len();
    let used = digits.len() / len;
    for (m, byte) in packed.iter_mut().enumerate() {
        let digit = |n: usize| if n < used { u16::from(digits[len * n + m]) } else { 0 };
        let number = (0..5).fold(0, |number, n| 3 * number + digit(n));
        // The least byte whose fraction is not below the number's: digits come out again without rounding.
        *byte = (number * 256).div_ceil(243) as u8;
    }
}

/// Rounds numbers to digits 0, 1, 2 around the largest magnitude, and returns that.
pub fn quantize(x: &[f32], digits: &mut [u8]) -> f32 {
    let d = crate::search::magnitude(x);
    let inverse = crate::search::inverse(d);
    for (digit, x) in digits.iter_mut().zip(x) {
        *digit = ((x * inverse).round().clamp(-1.0, 1.0) + 1.0) as u8;
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_five_digits_survive_a_byte() {
        for number in 0..243u16 {
            let digits: [u8; 5] = std::array::from_fn(|n| (number / 3u16.pow(4 - n as u32) % 3) as u8);
            let (mut byte, mut codes) = ([0], [0; 5]);
            pack(&digits, &mut byte);
            unpack(&byte, &mut codes);
            assert_eq!(codes.map(|c| (c + 1) as u8), digits);
        }
    }
}
