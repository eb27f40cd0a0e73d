//! The encodings that have kernels of their own, in plain Rust. Layouts are those of the same-named files of the
//! `quant` crate.

use super::activations::code_place;
use super::format::{Chunk, Format};
use half::f16;

/// Eight blocks of 18 bytes.
pub struct Q4_0;
/// Eight blocks of 20 bytes.
pub struct Q4_1;
/// Eight blocks of 22 bytes.
pub struct Q5_0;
/// Eight blocks of 24 bytes.
pub struct Q5_1;
/// Eight blocks of 34 bytes.
pub struct Q8_0;
/// One block.
pub struct Q4K;
/// One block.
pub struct Q5K;
/// One block.
pub struct Q6K;
/// Eight blocks of 18 bytes.
pub struct Iq4Nl;
/// One block.
pub struct Iq4Xs;
/// One block.
pub struct Tq2_0;
/// Four blocks of 18 bytes.
pub struct Q2_0;

/// The levels of `iq4_nl` and `iq4_xs`, with 128 added.
pub static LEVELS: [u8; 16] = [1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241];

/// Where group `g` of 32 stands among the scales of a chunk.
const fn coarse_place(g: usize) -> usize {
    g % 2 * 4 + g / 2
}

/// Where group `g` of 16 stands among the scales of a chunk.
const fn fine_place(g: usize) -> usize {
    g / 8 * 8 + g / 2 % 2 * 4 + g % 8 / 4 * 2 + g % 2
}

#[inline(always)]
fn half_at(bytes: &[u8], at: usize) -> f32 {
    // Written out, as the library asks at run time which instructions there are.
    let bits = u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (sign, rest) = ((bits & 0x8000) << 16, bits & 0x7FFF);
    if !(0x0400..0x7C00).contains(&rest) {
        return f16::from_bits(bits as u16).to_f32();
    }
    f32::from_bits(sign | ((rest << 13) + (112 << 23)))
}

/// The sixteen codes of half `half` of group `g`.
#[inline(always)]
fn sixteen(out: &mut Chunk, g: usize, half: usize) -> &mut [u8; 16] {
    out.codes[code_place(32 * g + 16 * half)..].first_chunk_mut().expect("a chunk has sixteen halves")
}

/// Half-split nibbles, through `meaning`, to group `g`.
#[inline(always)]
fn half_split(packed: &[u8], out: &mut Chunk, g: usize, meaning: impl Fn(u8) -> u8) {
    let packed: &[u8; 16] = packed.first_chunk().expect("sixteen bytes");
    for i in 0..16 {
        sixteen(out, g, 0)[i] = meaning(packed[i] & 15);
    }
    for i in 0..16 {
        sixteen(out, g, 1)[i] = meaning(packed[i] >> 4);
    }
}

/// Adds 16 where the bit of a number is set, number 0 in bit 0.
#[inline(always)]
fn fifth_bits(bits: u32, out: &mut Chunk, g: usize) {
    for half in 0..2 {
        let codes = sixteen(out, g, half);
        for i in 0..16 {
            codes[i] |= ((bits >> (16 * half + i)) as u8 & 1) << 4;
        }
    }
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a block has the length of its format"))
}

impl Format for Q4_0 {
    const CHUNK_BYTES: usize = 144;
    const BIAS: i32 = 8;
    const TOP: i32 = 15;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (g, block) in bytes.as_chunks::<18>().0.iter().enumerate() {
            out.scale[coarse_place(g)] = half_at(block, 0);
            half_split(&block[2..], out, g, |q| q);
        }
    }
}

impl Format for Q4_1 {
    const CHUNK_BYTES: usize = 160;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 15;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (g, block) in bytes.as_chunks::<20>().0.iter().enumerate() {
            out.scale[coarse_place(g)] = half_at(block, 0);
            out.offset[coarse_place(g)] = half_at(block, 2);
            half_split(&block[4..], out, g, |q| q);
        }
    }
}

impl Format for Q5_0 {
    const CHUNK_BYTES: usize = 176;
    const BIAS: i32 = 16;
    const TOP: i32 = 31;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (g, block) in bytes.as_chunks::<22>().0.iter().enumerate() {
            out.scale[coarse_place(g)] = half_at(block, 0);
            half_split(&block[6..], out, g, |q| q);
            fifth_bits(u32_at(block, 2), out, g);
        }
    }
}

impl Format for Q5_1 {
    const CHUNK_BYTES: usize = 192;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 31;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (g, block) in bytes.as_chunks::<24>().0.iter().enumerate() {
            out.scale[coarse_place(g)] = half_at(block, 0);
            out.offset[coarse_place(g)] = half_at(block, 2);
            half_split(&block[8..], out, g, |q| q);
            fifth_bits(u32_at(block, 4), out, g);
        }
    }
}

impl Format for Q8_0 {
    const CHUNK_BYTES: usize = 272;
    const BIAS: i32 = 128;
    const TOP: i32 = 255;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (g, block) in bytes.as_chunks::<34>().0.iter().enumerate() {
            out.scale[coarse_place(g)] = half_at(block, 0);
            for half in 0..2 {
                for i in 0..16 {
                    sixteen(out, g, half)[i] = block[2 + 16 * half + i] ^ 0x80;
                }
            }
        }
    }
}

/// Scales and offsets of a `q4_k` or `q5_k` block.
#[inline(always)]
fn k_scales(bytes: &[u8], out: &mut Chunk) {
    let (d, dmin, s) = (half_at(bytes, 0), half_at(bytes, 2), &bytes[4..16]);
    for j in 0..4 {
        let mut put = |g: usize, scale: u8, min: u8| {
            out.scale[coarse_place(g)] = d * f32::from(scale);
            out.offset[coarse_place(g)] = -(dmin * f32::from(min));
        };
        put(j, s[j] & 63, s[j + 4] & 63);
        put(j + 4, s[j + 8] & 15 | s[j] >> 6 << 4, s[j + 8] >> 4 | s[j + 4] >> 6 << 4);
    }
}

/// Nibbles in planes of 64 numbers: 32 bytes hold a group in their low halves and the next in their high halves.
#[inline(always)]
fn planes(packed: &[u8], out: &mut Chunk) {
    for (i, packed) in packed.as_chunks::<32>().0.iter().enumerate() {
        for half in 0..2 {
            for j in 0..16 {
                sixteen(out, 2 * i, half)[j] = packed[16 * half + j] & 15;
            }
            for j in 0..16 {
                sixteen(out, 2 * i + 1, half)[j] = packed[16 * half + j] >> 4;
            }
        }
    }
}

impl Format for Q4K {
    const CHUNK_BYTES: usize = 144;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 15;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        k_scales(bytes, out);
        planes(&bytes[16..144], out);
    }
}

impl Format for Q5K {
    const CHUNK_BYTES: usize = 176;
    const OFFSET: bool = true;
    const BIAS: i32 = 0;
    const TOP: i32 = 31;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        k_scales(bytes, out);
        planes(&bytes[48..176], out);
        for g in 0..8 {
            for half in 0..2 {
                let codes = sixteen(out, g, half);
                for j in 0..16 {
                    codes[j] |= (bytes[16 + 16 * half + j] >> g & 1) << 4;
                }
            }
        }
    }
}

impl Format for Q6K {
    const CHUNK_BYTES: usize = 210;
    const FINE: bool = true;
    const BIAS: i32 = 32;
    const TOP: i32 = 63;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        let d = half_at(bytes, 208);
        for g in 0..16 {
            out.scale[fine_place(g)] = d * f32::from(bytes[192 + g] as i8);
        }
        for n in 0..2 {
            let (low, high) = (&bytes[64 * n..64 * n + 64], &bytes[128 + 32 * n..160 + 32 * n]);
            for plane in 0..4 {
                for half in 0..2 {
                    let codes = sixteen(out, 4 * n + plane, half);
                    for j in 0..16 {
                        let nibble = low[plane % 2 * 32 + 16 * half + j] >> (plane / 2 * 4) & 15;
                        codes[j] = nibble | (high[16 * half + j] >> (2 * plane) & 3) << 4;
                    }
                }
            }
        }
    }
}

impl Format for Iq4Nl {
    const CHUNK_BYTES: usize = 144;
    const BIAS: i32 = 128;
    const TOP: i32 = 241;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (g, block) in bytes.as_chunks::<18>().0.iter().enumerate() {
            out.scale[coarse_place(g)] = half_at(block, 0);
            half_split(&block[2..], out, g, |q| LEVELS[usize::from(q)]);
        }
    }
}

impl Format for Iq4Xs {
    const CHUNK_BYTES: usize = 136;
    const BIAS: i32 = 128;
    const TOP: i32 = 241;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        let (d, high) = (half_at(bytes, 0), u16::from_le_bytes([bytes[2], bytes[3]]));
        for g in 0..8 {
            let scale = bytes[4 + g / 2] >> (4 * (g % 2)) & 15 | ((high >> (2 * g) & 3) as u8) << 4;
            out.scale[coarse_place(g)] = d * f32::from(scale as i8 - 32);
            half_split(&bytes[8 + 16 * g..], out, g, |q| LEVELS[usize::from(q)]);
        }
    }
}

impl Format for Tq2_0 {
    const CHUNK_BYTES: usize = 66;
    const BIAS: i32 = 1;
    const TOP: i32 = 3;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        out.scale[..8].fill(half_at(bytes, 64));
        for g in 0..8 {
            for half in 0..2 {
                let codes = sixteen(out, g, half);
                for j in 0..16 {
                    codes[j] = bytes[g / 4 * 32 + 16 * half + j] >> (2 * (g % 4)) & 3;
                }
            }
        }
    }
}

impl Format for Q2_0 {
    const CHUNK_BYTES: usize = 72;
    const BIAS: i32 = 1;
    const TOP: i32 = 3;

    #[inline(always)]
    fn expand(bytes: &[u8], out: &mut Chunk) {
        for (b, block) in bytes.as_chunks::<18>().0.iter().enumerate() {
            for g in 0..2 {
                out.scale[coarse_place(2 * b + g)] = half_at(block, 0);
                for half in 0..2 {
                    let packed = u32_at(block, 2 + 8 * g + 4 * half);
                    let codes = sixteen(out, 2 * b + g, half);
                    for j in 0..16 {
                        codes[j] = (packed >> (2 * j)) as u8 & 3;
                    }
                }
            }
        }
    }
}
