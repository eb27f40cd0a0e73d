//! The fields of a block: little-endian numbers at an offset, and the orders in which small codes are packed.

use half::f16;

/// The `N` bytes at `at`.
pub fn bytes<const N: usize>(block: &[u8], at: usize) -> &[u8; N] {
    block[at..].first_chunk().expect("a block has the length of its spec")
}

/// The half-precision number at `at`.
pub fn f16_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes(*bytes(block, at)).to_f32()
}

/// The `u16` at `at`.
pub fn u16_at(block: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(*bytes(block, at))
}

/// The `u32` at `at`.
pub fn u32_at(block: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes(block, at))
}

/// Writes `x` in half precision at `at` and returns what a reader will see.
pub fn put_f16(block: &mut [u8], at: usize, x: f32) -> f32 {
    let x = f16::from_f32(x);
    block[at..at + 2].copy_from_slice(&x.to_le_bytes());
    x.to_f32()
}

/// Half-split nibbles: the low ones hold the first half of the numbers, the high ones the second half.
pub fn half_split(packed: &[u8], codes: &mut [i8], meaning: impl Fn(u8) -> i8) {
    let (low, high) = codes.split_at_mut(packed.len());
    for ((low, high), &byte) in low.iter_mut().zip(high).zip(packed) {
        *low = meaning(byte & 15);
        *high = meaning(byte >> 4);
    }
}

/// The reverse of [`half_split`].
pub fn put_half_split(codes: &[u8], packed: &mut [u8]) {
    let (low, high) = codes.split_at(packed.len());
    for ((byte, low), high) in packed.iter_mut().zip(low).zip(high) {
        *byte = low & 15 | high << 4;
    }
}

/// Four-bit planes: number `64n + 32j + l` is in the bits from `4j` of byte `32n + l`.
pub fn planes4(packed: &[u8; 128]) -> [u8; 256] {
    let mut codes = [0; 256];
    for (codes, packed) in codes.chunks_exact_mut(64).zip(packed.chunks_exact(32)) {
        let (low, high) = codes.split_at_mut(32);
        for ((low, high), &byte) in low.iter_mut().zip(high).zip(packed) {
            *low = byte & 15;
            *high = byte >> 4;
        }
    }
    codes
}

/// The reverse of [`planes4`], from the low four bits of each code.
pub fn put_planes4(codes: &[u8; 256], packed: &mut [u8]) {
    for (codes, packed) in codes.chunks_exact(64).zip(packed.chunks_exact_mut(32)) {
        put_half_split(codes, packed);
    }
}

/// Two-bit planes: number `128n + 32j + l` is in the bits from `2j` of byte `32n + l`.
pub fn planes2(packed: &[u8; 64]) -> [u8; 256] {
    let mut codes = [0; 256];
    for (codes, packed) in codes.chunks_exact_mut(128).zip(packed.chunks_exact(32)) {
        for (j, plane) in codes.chunks_exact_mut(32).enumerate() {
            for (code, &byte) in plane.iter_mut().zip(packed) {
                *code = byte >> (2 * j) & 3;
            }
        }
    }
    codes
}

/// The reverse of [`planes2`], from the low two bits of each code.
pub fn put_planes2(codes: &[u8; 256], packed: &mut [u8]) {
    for (codes, packed) in codes.chunks_exact(128).zip(packed.chunks_exact_mut(32)) {
        for (l, byte) in packed.iter_mut().enumerate() {
            *byte = (0..4).fold(0, |byte, j| byte | (codes[32 * j + l] & 3) << (2 * j));
        }
    }
}

/// Bytes as signed codes.
pub fn signed_bytes(packed: &[u8], codes: &mut [i8]) {
    for (code, &byte) in codes.iter_mut().zip(packed) {
        *code = byte as i8;
    }
}

/// Bit 4 of each of 32 codes, the first lowest.
pub fn fifth_bits(codes: &[u8; 32]) -> u32 {
    codes.iter().rev().fold(0, |bits, code| bits << 1 | u32::from(code >> 4))
}
