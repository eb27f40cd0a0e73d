//! Scales of six bits that are packed in pieces, a byte each: what the kernels of several instruction sets share.

/// Eight scales and eight minimums of a block of `q4_k` or `q5_k`.
#[inline(always)]
pub fn scales_and_minimums(block: &[u8]) -> [u64; 2] {
    let word = |at: usize| {
        u32::from_le_bytes(*block[at..].first_chunk().expect("a block has twelve bytes of scales"))
    };
    let (s, m, rest) = (word(4), word(8), word(12));
    let low = |x: u32| u64::from(x & 0x3F3F_3F3F);
    let high = |four: u32, two: u32| u64::from(four & 0x0F0F_0F0F | (two >> 6 & 0x0303_0303) << 4) << 32;
    [low(s) | high(rest, s), low(m) | high(rest >> 4, m)]
}

/// Eight scales of a block of `iq4_xs`: four bits from one place, two from another.
#[inline(always)]
pub fn of_eight(block: &[u8]) -> u64 {
    let low = u32::from_le_bytes(*block[4..].first_chunk().expect("four bytes of scales"));
    let mut high = u64::from(u16::from_le_bytes([block[2], block[3]]));
    high = (high | high << 24) & 0x0000_00FF_0000_00FF;
    high = (high | high << 12) & 0x000F_000F_000F_000F;
    high = (high | high << 6) & 0x0303_0303_0303_0303;
    nibbles(low) | high << 4
}

/// Eight nibbles, low ones first.
#[inline(always)]
pub fn nibbles(four: u32) -> u64 {
    let mut eight = u64::from(four);
    eight = (eight | eight << 16) & 0x0000_FFFF_0000_FFFF;
    eight = (eight | eight << 8) & 0x00FF_00FF_00FF_00FF;
    (eight | eight << 4) & 0x0F0F_0F0F_0F0F_0F0F
}

/// Sixteen scales of a block of `q3_k`.
#[inline(always)]
pub fn of_sixteen(block: &[u8]) -> [u64; 2] {
    let low = u64::from_le_bytes(*block[96..].first_chunk().expect("a block has twelve bytes of scales"));
    let high = u32::from_le_bytes(*block[104..].first_chunk().expect("a block has twelve bytes of scales"));
    let nibbles = 0x0F0F_0F0F_0F0F_0F0F;
    let two = |shift: u32| u64::from(high >> shift & 0x0303_0303);
    let first = low & nibbles | (two(0) | two(2) << 32) << 4;
    let last = low >> 4 & nibbles | (two(4) | two(6) << 32) << 4;
    [first, last]
}
