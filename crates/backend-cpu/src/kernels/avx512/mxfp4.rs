//! `mxfp4` for AVX-512: blocks of 17 bytes, a power of two and 16 bytes of half-split four-bit floats.

use super::bytes::{Bytes, empty};
use super::vbmi::permute_two;
use super::*;
use crate::kernels::activations::COARSE_ORDER;
use crate::kernels::format::Format;

/// Eight blocks of 17 bytes.
struct Mxfp4;

impl Format for Mxfp4 {
    const CHUNK_BYTES: usize = 136;
    const BIAS: i32 = 16;
    const TOP: i32 = 28;
}

blocks!("mxfp4", Mxfp4, load_pair);

/// The nibbles of two blocks of each row, from what is loaded `early` bytes before the first.
const fn two_blocks(early: usize) -> Bytes {
    let mut table = [0; 64];
    let mut i = 0;
    while i < 64 {
        table[i] = (i / 32 * 64 + early + i % 32 / 16 * 17 + 1 + i % 16) as u8;
        i += 1;
    }
    Bytes(table)
}

static BLOCKS_OF_TWO: Bytes = two_blocks(0);
static LAST_TWO: Bytes = two_blocks(30);
/// The scales of a row in two vectors.
static SCALES: Bytes = {
    let mut table = [0; 64];
    let mut place = 0;
    while place < 8 {
        table[place] = 17 * COARSE_ORDER[place] as u8;
        place += 1;
    }
    Bytes(table)
};

#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn load_pair(a: &[u8; 136], b: &[u8; 136]) -> Pair {
    let mut pair = empty([scales(a, b); 2]);
    for i in 0..4 {
        let (at, pick) = if i == 3 { (72, &LAST_TWO) } else { (34 * i, &BLOCKS_OF_TWO) };
        let packed = permute_two(load(a, at), pick.get(), load(b, at));
        pair.low[i] = nvfp4::floats(packed);
        pair.high[i] = nvfp4::floats(_mm512_srli_epi16::<4>(packed));
    }
    pair
}

/// `2^(e - 128)`, a subnormal number for e < 2.
#[inline]
#[target_feature(enable = "avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni")]
fn scales(a: &[u8], b: &[u8]) -> __m512 {
    let pick = SCALES.get();
    let eight = |row| {
        let bytes = permute_two(load(row, 0), pick, load(row, 64));
        _mm512_castsi512_si128(bytes)
    };
    let e = _mm512_cvtepu8_epi32(_mm_unpacklo_epi64(eight(a), eight(b)));
    let one = _mm512_set1_epi32(1);
    let normal = _mm512_slli_epi32::<23>(_mm512_sub_epi32(e, one));
    let small = _mm512_sllv_epi32(_mm512_set1_epi32(0x0020_0000), e);
    _mm512_castsi512_ps(_mm512_mask_mov_epi32(normal, _mm512_cmple_epu32_mask(e, one), small))
}
