//! The encodings that have kernels on several instruction sets. Layouts are those of the same-named files of the `quant`
//! crate.

use super::format::Format;

/// Eight blocks of 18 bytes.
pub struct Q4_0;

impl Format for Q4_0 {
    const CHUNK_BYTES: usize = 144;
    const BIAS: i32 = 8;
    const TOP: i32 = 15;
}

/// Eight blocks of 20 bytes.
pub struct Q4_1;

impl Format for Q4_1 {
    const CHUNK_BYTES: usize = 160;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 15;
}

/// Eight blocks of 22 bytes.
pub struct Q5_0;

impl Format for Q5_0 {
    const CHUNK_BYTES: usize = 176;
    const BIAS: i32 = 16;
    const TOP: i32 = 31;
}

/// Eight blocks of 24 bytes.
pub struct Q5_1;

impl Format for Q5_1 {
    const CHUNK_BYTES: usize = 192;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 31;
}

/// Eight blocks of 34 bytes.
pub struct Q8_0;

impl Format for Q8_0 {
    const CHUNK_BYTES: usize = 272;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;
}

/// One block.
pub struct Q4K;

impl Format for Q4K {
    const CHUNK_BYTES: usize = 144;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 15;
}

/// One block.
pub struct Q5K;

impl Format for Q5K {
    const CHUNK_BYTES: usize = 176;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 31;
}

/// One block.
pub struct Q6K;

impl Format for Q6K {
    const CHUNK_BYTES: usize = 210;
    const FINE: bool = true;
    const BIAS: i32 = 32;
    const TOP: i32 = 63;
}

/// Eight blocks of 18 bytes.
pub struct Iq4Nl;

impl Format for Iq4Nl {
    const CHUNK_BYTES: usize = 144;
    const BIAS: i32 = 128;
    const TOP: i32 = 241;
}

/// One block.
pub struct Iq4Xs;

impl Format for Iq4Xs {
    const CHUNK_BYTES: usize = 136;
    const BIAS: i32 = 128;
    const TOP: i32 = 241;
}

/// One block.
pub struct Tq2_0;

impl Format for Tq2_0 {
    const CHUNK_BYTES: usize = 66;
    const BIAS: i32 = 1;
    const TOP: i32 = 3;
}

/// Four blocks of 18 bytes.
pub struct Q2_0;

impl Format for Q2_0 {
    const CHUNK_BYTES: usize = 72;
    const BIAS: i32 = 1;
    const TOP: i32 = 3;
}

/// One block.
#[cfg(target_arch = "x86_64")]
pub struct Q2K;

#[cfg(target_arch = "x86_64")]
impl Format for Q2K {
    const CHUNK_BYTES: usize = 84;
    const FINE: bool = true;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 3;
}

/// One block.
#[cfg(target_arch = "x86_64")]
pub struct Q3K;

#[cfg(target_arch = "x86_64")]
impl Format for Q3K {
    const CHUNK_BYTES: usize = 110;
    const FINE: bool = true;
    const BIAS: i32 = 4;
    const TOP: i32 = 7;
}

/// The levels of `iq4_nl` and `iq4_xs`, with 128 added.
pub static LEVELS: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];
